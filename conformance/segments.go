package conformance

// Segments is a TCP that the judge makes by hand: its cases see each segment of the
// device's, and choose their own. Of its streams, Dial and Accept return [Segmented] ones,
// of which Read returns what came in one segment at a time: without what had come before.
type Segments interface {
	Streams
	// Shape says how connections are made from then on.
	Shape(TCPShape)
}

// TCPShape is how the judge makes a connection.
type TCPShape struct {
	// First is the sequence number of the judge's SYN; random if nil. Its first octet has
	// the next.
	First *uint32
	// MSS is how much a segment of the device's may hold; what the cable carries if 0.
	MSS int
}

// Segmented is a stream whose segments the judge makes.
type Segmented interface {
	Stream
	// Hold takes the next octets of the judge's direction and sends none of them: Release
	// does. What is written meanwhile goes out behind a gap.
	Hold(b []byte) error
	// Release sends octets from to to, counted in what is held, as one segment: in any
	// order, and as often as it is called. Once each was sent, all is as if it had been
	// written, what the network loses is repeated, and Release sends it once more.
	Release(from, to int) error
	// ReleaseEnd sends what is held from an octet on, and ends the judge's side in the same
	// segment. Nothing may have been written since.
	ReleaseEnd(from int) error
}
