package wire

// PSN is a 24-bit packet sequence number. Ordering wraps: use Less and Sub,
// never < or -.
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
