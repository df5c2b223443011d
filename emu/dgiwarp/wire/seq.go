package wire

// Seq is the 32-bit number by which a flow counts its packets, from 0 on.
// Ordering wraps: use Less and Sub, never < or -.
type Seq uint32

// Add returns the number n packets after s, or before it if n is negative.
func (s Seq) Add(n int32) Seq { return s + Seq(n) }

// Sub returns the signed distance from q to s, in [-2^31, 2^31).
func (s Seq) Sub(q Seq) int32 { return int32(s - q) }

// Less reports whether s comes before q.
func (s Seq) Less(q Seq) bool { return s.Sub(q) < 0 }

// Epoch tells the flows of one pair of QPs apart, one after the other. It is
// not a count: there is no order between two of them.
type Epoch uint32
