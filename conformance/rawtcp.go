package conformance

// RawTCP is a TCP implementation whose segments a case controls. Its connections are
// [RawStream] values; their Read returns the payload of one segment at a time.
type RawTCP interface {
	Streams
	// SetOptions sets the options of connections made from now on.
	SetOptions(TCPOptions)
}

// TCPOptions are the options of the peer's connections.
type TCPOptions struct {
	// ISN is the initial sequence number, that of the peer's SYN; random if nil.
	ISN *uint32
	// MSS is the maximum segment size that the peer announces; that of the link if 0.
	MSS int
}

// RawStream is a TCP connection whose segments a case controls.
type RawStream interface {
	Stream
	// Hold appends b to the send buffer and sends none of it; SendHeld does. Octets
	// written later are sent after the gap.
	Hold(b []byte) error
	// SendHeld sends octets from..to of the held data as one segment. The case may send
	// ranges in any order and repeatedly. Once every octet was sent, the held data is
	// retransmitted after losses like written data.
	SendHeld(from, to int) error
	// SendHeldFIN sends the held data from an octet on, with FIN in the same segment.
	// Nothing may have been written after Hold.
	SendHeldFIN(from int) error
}
