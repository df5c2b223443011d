package ib

// PSN is a 24-bit packet sequence number. It wraps: use its methods to compare.
type PSN uint32

const mask24 = 1<<24 - 1

// AnyPSN matches any PSN.
const AnyPSN PSN = 1<<32 - 1

// AnyMSN matches any MSN.
const AnyMSN uint32 = 1<<32 - 1

// Add returns the PSN n packets later, or earlier.
func (p PSN) Add(n int) PSN { return PSN(uint32(int64(p)+int64(n))) & mask24 }

// Sub returns the signed distance from q to p, from -2^23 to 2^23-1.
func (p PSN) Sub(q PSN) int { return int(int32((p-q)<<8) >> 8) }

// Less reports whether p is before q.
func (p PSN) Less(q PSN) bool { return p.Sub(q) < 0 }
