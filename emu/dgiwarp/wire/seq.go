package wire

// Seq is the 32-bit sequence number of a packet in its flow, from 0 on.
// Ordering wraps: use Less and Sub, never < or -.
type Seq uint32

// Add returns the number n packets after s, or before it if n is negative.
func (s Seq) Add(n int32) Seq { return s + Seq(n) }

// Sub returns the distance from q to s, negative if s comes before q, in [-2^31, 2^31).
func (s Seq) Sub(q Seq) int32 { return int32(s - q) }

// Less reports whether s comes before q.
func (s Seq) Less(q Seq) bool { return s.Sub(q) < 0 }

// Epoch identifies one of the successive flows between two QPs. Epochs are not ordered.
type Epoch uint32
