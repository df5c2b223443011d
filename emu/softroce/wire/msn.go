package wire

// MSN is the 24-bit message sequence number by which a responder counts the
// requests it has completed. Ordering wraps as for PSN.
type MSN uint32

// MSNMask is the largest MSN; the one after it is 0.
const MSNMask MSN = 1<<24 - 1

// Add returns the MSN n messages after m, or before it if n is negative.
func (m MSN) Add(n int32) MSN { return (m + MSN(n)) & MSNMask }

// Next returns the MSN after m.
func (m MSN) Next() MSN { return (m + 1) & MSNMask }

// Sub returns the signed distance from q to m, in [-2^23, 2^23).
func (m MSN) Sub(q MSN) int32 { return int32((m-q)<<8) >> 8 }

// Less reports whether m comes before q.
func (m MSN) Less(q MSN) bool { return m.Sub(q) < 0 }
