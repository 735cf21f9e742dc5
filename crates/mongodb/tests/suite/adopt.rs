//! Collections that people wrote by hand, taken over as they are.

mod by_hand;
mod definitions;
mod moving;
mod side_by_side;
