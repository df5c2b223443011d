package wire

import "encoding/binary"

// Extension headers follow the BTH. appendTo appends a header in wire order, with fields truncated
// to their width. parse decodes it from the front of b, which is long enough, and returns the
// bytes that follow.

// RDETH is the Reliable Datagram Extended Transport Header: the end-to-end context. No known
// device supports RD; the codec has it for captures.
type RDETH struct {
	EEContext uint32 // 24 bits
	Reserved  uint8  // byte 0
}

func (h RDETH) appendTo(b []byte) []byte {
	return appendReserved8And24(b, h.Reserved, h.EEContext)
}

func (h *RDETH) parse(b []byte) (rest []byte) {
	h.Reserved = b[0]
	h.EEContext = binary.BigEndian.Uint32(b) & mask24
	return b[RDETHLen:]
}

// XRCETH is the XRC Extended Transport Header: the shared receive queue of a request.
type XRCETH struct {
	SRQN     uint32 // 24 bits
	Reserved uint8  // byte 0
}

func (h XRCETH) appendTo(b []byte) []byte {
	return appendReserved8And24(b, h.Reserved, h.SRQN)
}

func (h *XRCETH) parse(b []byte) (rest []byte) {
	h.Reserved = b[0]
	h.SRQN = binary.BigEndian.Uint32(b) & mask24
	return b[XRCETHLen:]
}

// DETH is the Datagram Extended Transport Header: the source QP, the destination's Q_Key.
type DETH struct {
	QKey     uint32
	SrcQP    uint32 // 24 bits
	Reserved uint8  // byte 4
}

func (h DETH) appendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, h.QKey)
	return appendReserved8And24(b, h.Reserved, h.SrcQP)
}

// parse decodes h from the front of b and returns the bytes that follow.
func (h *DETH) parse(b []byte) (rest []byte) {
	h.QKey = binary.BigEndian.Uint32(b)
	h.Reserved = b[4]
	h.SrcQP = binary.BigEndian.Uint32(b[4:]) & mask24
	return b[DETHLen:]
}

// appendReserved8And24 appends a reserved byte and a 24-bit number, as in DETH, XRCETH and RDETH.
func appendReserved8And24(b []byte, reserved uint8, number uint32) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(reserved)<<24|number&mask24)
}

// FETH is the Flush Extended Transport Header.
//
//	31-6 reserved | 5-4 selectivity | 3-0 placement
type FETH struct {
	Placement   uint8  // bits of verbs.FlushType: 1 global visibility, 2 persistence
	Selectivity uint8  // verbs.FlushLevel: 0 the range that the RETH names, 1 its whole memory region
	Reserved    uint32 // 26 bits
}

func (h FETH) appendTo(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b,
		h.Reserved<<6|uint32(h.Selectivity&3)<<4|uint32(h.Placement&0x0F))
}

// parse decodes h from the front of b and returns the bytes that follow.
func (h *FETH) parse(b []byte) (rest []byte) {
	v := binary.BigEndian.Uint32(b)
	h.Placement = uint8(v & 0x0F)
	h.Selectivity = uint8(v >> 4 & 3)
	h.Reserved = v >> 6
	return b[FETHLen:]
}

// RETH is the RDMA Extended Transport Header: the memory of a WRITE, READ, FLUSH or ATOMIC_WRITE.
type RETH struct {
	VA     uint64
	RKey   uint32
	DMALen uint32 // length of the whole message, at most 2^31
}

func (h RETH) appendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, h.VA)
	b = binary.BigEndian.AppendUint32(b, h.RKey)
	return binary.BigEndian.AppendUint32(b, h.DMALen)
}

// parse decodes h from the front of b and returns the bytes that follow.
func (h *RETH) parse(b []byte) (rest []byte) {
	h.VA = binary.BigEndian.Uint64(b)
	h.RKey = binary.BigEndian.Uint32(b[8:])
	h.DMALen = binary.BigEndian.Uint32(b[12:])
	return b[RETHLen:]
}

// AtomicETH is the Atomic Extended Transport Header. COMPARE_SWAP stores SwapAdd if the word
// equals Compare. FETCH_ADD adds SwapAdd; Compare should be 0 and is ignored.
type AtomicETH struct {
	VA      uint64
	RKey    uint32
	SwapAdd uint64
	Compare uint64
}

// appendTo appends h in wire order and returns the extended slice.
func (h AtomicETH) appendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, h.VA)
	b = binary.BigEndian.AppendUint32(b, h.RKey)
	b = binary.BigEndian.AppendUint64(b, h.SwapAdd)
	return binary.BigEndian.AppendUint64(b, h.Compare)
}

// parse decodes h from the front of b and returns the bytes that follow.
func (h *AtomicETH) parse(b []byte) (rest []byte) {
	h.VA = binary.BigEndian.Uint64(b)
	h.RKey = binary.BigEndian.Uint32(b[8:])
	h.SwapAdd = binary.BigEndian.Uint64(b[12:])
	h.Compare = binary.BigEndian.Uint64(b[20:])
	return b[AtomicETHLen:]
}

// AETH is the ACK Extended Transport Header: a syndrome, and the number of requests that
// the responder has completed.
type AETH struct {
	Syndrome Syndrome
	MSN      MSN
}

func (h AETH) appendTo(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(h.Syndrome)<<24|uint32(h.MSN&MSNMask))
}

func (h *AETH) parse(b []byte) (rest []byte) {
	h.Syndrome = Syndrome(b[0])
	h.MSN = MSN(binary.BigEndian.Uint32(b)) & MSNMask
	return b[AETHLen:]
}

// AtomicAckETH carries the value of the word before an atomic operation.
type AtomicAckETH struct {
	Original uint64
}

func (h AtomicAckETH) appendTo(b []byte) []byte {
	return binary.BigEndian.AppendUint64(b, h.Original)
}

func (h *AtomicAckETH) parse(b []byte) (rest []byte) {
	h.Original = binary.BigEndian.Uint64(b)
	return b[AtomicAckETHLen:]
}

// ImmDt is immediate data: four opaque bytes, as a big-endian number.
type ImmDt uint32

func (d ImmDt) appendTo(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(d))
}

func (d *ImmDt) parse(b []byte) (rest []byte) {
	*d = ImmDt(binary.BigEndian.Uint32(b))
	return b[ImmDtLen:]
}

// IETH is the Invalidate Extended Transport Header: the R_Key that a SEND invalidates.
type IETH struct {
	RKey uint32
}

func (h IETH) appendTo(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, h.RKey)
}

func (h *IETH) parse(b []byte) (rest []byte) {
	h.RKey = binary.BigEndian.Uint32(b)
	return b[IETHLen:]
}
