package wire

// PSN is a 24-bit packet sequence number. Ordering wraps: use Less and Sub, never < or -.
type PSN uint32

// PSNMask is the largest PSN; the one after it is 0.
const PSNMask PSN = 1<<24 - 1

// Add returns the PSN n packets after p, or before it if n is negative.
func (p PSN) Add(n int32) PSN { return (p + PSN(n)) & PSNMask }

// Next returns the PSN after p.
func (p PSN) Next() PSN { return (p + 1) & PSNMask }

// Sub returns the signed distance from q to p, in [-2^23, 2^23).
func (p PSN) Sub(q PSN) int32 { return int32((p-q)<<8) >> 8 }

// Less reports whether p comes before q. For numbers half the number space apart both
// p.Less(q) and q.Less(p) hold: windows must be smaller.
func (p PSN) Less(q PSN) bool { return p.Sub(q) < 0 }

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
