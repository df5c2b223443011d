package nic

// Policy has the decisions about memory and completion queues in which devices differ. The zero
// value follows the specifications.
type Policy struct {
	// RepeatOverrun reports every completion that an overrun CQ cannot take, not only the first.
	RepeatOverrun bool
	// WindowCoversRegion lets a memory window grant access to all of its region.
	WindowCoversRegion bool
	// BindAcrossPDs binds type 2 windows to regions of other protection domains.
	BindAcrossPDs bool
	// InvalidateFromAnyQP lets a QP invalidate type 2 windows of other QPs.
	InvalidateFromAnyQP bool
	// InvalidateAnyKey lets a QP invalidate regions and type 1 windows of its PD.
	InvalidateAnyKey bool
}
