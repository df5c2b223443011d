package iwarp

import "github.com/fabrictest/fabrictest/conformance/packet"

// ReadRequestHeader is the header of an RDMA Read Request (RFC 5040 section 4.4).
type ReadRequestHeader struct {
	_        struct{} `size:"28"`
	SinkSTag *uint32  `at:"0,32" fmt:"%#x"`
	SinkTO   *uint64  `at:"4,64" fmt:"%#x"`
	Size     *uint32  `at:"12,32"`
	SrcSTag  *uint32  `at:"16,32" fmt:"%#x"`
	SrcTO    *uint64  `at:"20,64" fmt:"%#x"`
}

// The atomic operations (RFC 7306 section 5.1).
const (
	AtomicFetchAdd    uint8 = 0
	AtomicCompareSwap uint8 = 2
)

// AtomicRequestHeader is the header of an Atomic Request (RFC 7306 section 5.2.1).
type AtomicRequestHeader struct {
	_           struct{} `size:"52"`
	Reserved    *uint32  `at:"0,28" fmt:"%#x"`
	Operation   *uint8   `at:"3.4,4"`
	ID          *uint32  `at:"4,32" fmt:"%#x"`
	STag        *uint32  `at:"8,32" fmt:"%#x"`
	TO          *uint64  `at:"12,64" fmt:"%#x"`
	Data        *uint64  `at:"20,64" fmt:"%#x"` // add or swap operand
	Mask        *uint64  `at:"28,64" fmt:"%#x"` // nil: all ones for a swap, else 0
	Compare     *uint64  `at:"36,64" fmt:"%#x"`
	CompareMask *uint64  `at:"44,64" fmt:"%#x"` // nil: all ones
}

// filled returns the header with default masks.
func (h AtomicRequestHeader) filled() AtomicRequestHeader {
	mask := uint64(0)
	if Val(h.Operation) == AtomicCompareSwap {
		mask = ^mask
	}
	return packet.Or(h, AtomicRequestHeader{Mask: &mask, CompareMask: new(^uint64(0))})
}

// AtomicResponseHeader is the header of an Atomic Response (RFC 7306 section 5.2.2). The
// RFC has two lengths for it; this is the length in the figure.
type AtomicResponseHeader struct {
	_        struct{} `size:"12"`
	ID       *uint32  `at:"0,32" fmt:"%#x"`
	Original *uint64  `at:"4,64" fmt:"%#x"`
}

// ImmediateHeader is the header of an Immediate Data message (RFC 7306 section 6.1).
type ImmediateHeader struct {
	_     struct{} `size:"8"`
	Value *uint64  `at:"0,64" fmt:"%#x"`
}
