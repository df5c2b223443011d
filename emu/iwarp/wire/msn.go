package wire

// MSN is the 32-bit message sequence number of a queue, from 1 on. Ordering wraps: use Less and Sub, never < or -.
type MSN uint32

// FirstMSN is the MSN of the first message of each queue.
const FirstMSN MSN = 1

// Next returns the MSN after m; after the largest comes 0.
func (m MSN) Next() MSN { return m + 1 }

// Add returns the MSN n messages after m, or before it if n is negative.
func (m MSN) Add(n int32) MSN { return m + MSN(n) }

// Sub returns the signed distance from q to m, in [-2^31, 2^31).
func (m MSN) Sub(q MSN) int32 { return int32(m - q) }

// Less reports whether m comes before q. For numbers half the number space apart both
// m.Less(q) and q.Less(m) hold: windows must be smaller.
func (m MSN) Less(q MSN) bool { return m.Sub(q) < 0 }
