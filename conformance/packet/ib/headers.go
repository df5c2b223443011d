package ib

// BTH is the base transport header.
type BTH struct {
	_      struct{} `size:"12"`
	Opcode *Opcode  `at:"0,8"`
	// SE asks for a solicited event at the receiver.
	SE     *bool `at:"1.0,1"`
	MigReq *bool `at:"1.1,1"`
	// PadCnt is how many of the bytes before the ICRC fill up the payload to a
	// multiple of four: as many as are needed.
	PadCnt *uint8  `at:"1.2,2"`
	TVer   *uint8  `at:"1.4,4"`
	PKey   *uint16 `at:"2,16" def:"0xffff" fmt:"%#04x"`
	// FECN, BECN and Resv6 are the byte that the ICRC does not cover.
	FECN   *bool   `at:"4.0,1"`
	BECN   *bool   `at:"4.1,1"`
	Resv6  *uint8  `at:"4.2,6" fmt:"%#02x"`
	DestQP *uint32 `at:"5,24" fmt:"%#x"`
	AckReq *bool   `at:"8.0,1"`
	Resv7  *uint8  `at:"8.1,7" fmt:"%#02x"`
	PSN    *PSN    `at:"9,24"`
}

// RETH says which remote memory a WRITE, a READ, a FLUSH or an ATOMIC WRITE is about.
type RETH struct {
	_    struct{} `size:"16"`
	VA   *uint64  `at:"0,64" fmt:"%#x"`
	RKey *uint32  `at:"8,32" fmt:"%#x"`
	Len  *uint32  `at:"12,32"`
}

// At returns the RETH for n bytes of remote memory. It takes numbers of any type.
func At[A ~uint64 | ~int | ~uintptr, K ~uint32 | ~int](va A, rkey K, n int) RETH {
	return RETH{VA: new(uint64(va)), RKey: new(uint32(rkey)), Len: new(uint32(n))}
}

// Skip returns what is left of the range behind its first n bytes.
func (h RETH) Skip(n int) RETH {
	if h.VA != nil {
		h.VA = new(*h.VA + uint64(n))
	}
	if h.Len != nil {
		h.Len = new(*h.Len - uint32(n))
	}
	return h
}

// Sized returns the range that begins there and has n bytes.
func (h RETH) Sized(n int) RETH {
	h.Len = new(uint32(n))
	return h
}

// AtomicETH is the request of an atomic. SwapAdd is what to store or to add; Compare
// has a meaning for COMPARE_SWAP only.
type AtomicETH struct {
	_       struct{} `size:"28"`
	VA      *uint64  `at:"0,64" fmt:"%#x"`
	RKey    *uint32  `at:"8,32" fmt:"%#x"`
	SwapAdd *uint64  `at:"12,64" fmt:"%#x"`
	Compare *uint64  `at:"20,64" fmt:"%#x"`
}

// AtomicAckETH is the answer to an atomic: what was there before.
type AtomicAckETH struct {
	_        struct{} `size:"8"`
	Original *uint64  `at:"0,64" fmt:"%#x"`
}

// DETH is the header of datagrams.
type DETH struct {
	_     struct{} `size:"8"`
	QKey  *uint32  `at:"0,32" fmt:"%#x"`
	Resv  *uint8   `at:"4,8" fmt:"%#02x"`
	SrcQP *uint32  `at:"5,24" fmt:"%#x"`
}

// ImmDt is immediate data.
type ImmDt struct {
	_    struct{} `size:"4"`
	Data *uint32  `at:"0,32" fmt:"%#x"`
}

// IETH names the key to invalidate.
type IETH struct {
	_    struct{} `size:"4"`
	RKey *uint32  `at:"0,32" fmt:"%#x"`
}

// XRCETH names the shared receive queue of an XRC request.
type XRCETH struct {
	_    struct{} `size:"4"`
	Resv *uint8   `at:"0,8" fmt:"%#02x"`
	SRQ  *uint32  `at:"1,24" fmt:"%#x"`
}

// RDETH names the end-to-end context of RD.
type RDETH struct {
	_    struct{} `size:"4"`
	Resv *uint8   `at:"0,8" fmt:"%#02x"`
	EE   *uint32  `at:"1,24" fmt:"%#x"`
}

// FETH says how to flush (annex A19).
type FETH struct {
	_    struct{} `size:"4"`
	Resv *uint32  `at:"0,26" fmt:"%#x"`
	// Selectivity is what: 0 the range of the RETH, 1 the whole memory region.
	Selectivity *uint8 `at:"3.2,2"`
	// Placement is how far, in bits.
	Placement *uint8 `at:"3.4,4"`
}

// Placements of a FLUSH.
const (
	FlushGlobal     = 1 // every reader sees it
	FlushPersistent = 2 // a loss of power does not undo it
)

// Selectivities of a FLUSH.
const (
	FlushRange = 0
	FlushMR    = 1
)
