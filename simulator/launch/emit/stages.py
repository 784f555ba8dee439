"""The blocks of each part of a pipeline, as a launch line of Megatron-LM says them."""

from simulator.errors import mention, refused
from simulator.launch.emit.parts import Emission
from simulator.launch.stages import layout_text
from simulator.questions.layout import Layout


def emit_stages(layout: Layout, layers: int, further: int, found: Emission) -> None:
    """Add to *found* the parts of *layers* blocks and of *further* ones, which predict tokens.

    Raises InputError for blocks that do not divide evenly, as Megatron-LM does.
    """
    parts, whole = layout.pp * layout.vp, layers + further
    blocks = layout.blocks or ((whole // parts,) * parts if further and layout.pp > 1 else ())
    found.options |= {
        "--pipeline-model-parallel-layout": layout_text(blocks, further) if blocks else None,
        "--num-virtual-stages-per-pipeline-rank": layout.vp if layout.vp > 1 and not blocks else None,
    }
    if layout.pp > 1 and whole % parts and not layout.blocks:
        each = mention("layout", f"pp={layout.pp},blocks=")
        raise refused(
            "emit", f"divides blocks evenly, and not {whole} into {parts} parts; say how many: {each}", "megatron"
        )
