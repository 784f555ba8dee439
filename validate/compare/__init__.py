"""A folder of measurements beside the prediction: errors, outliers, what explains them, what calibration mends."""
