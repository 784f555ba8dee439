"""A folder of measurements compared with predictions: errors, outliers, likely causes, worth of calibration."""
