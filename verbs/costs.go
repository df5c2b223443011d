package verbs

import "time"

// Costs is the CPU time of a host for verb calls and for operations on memory. The
// simulator lets it pass in virtual time; in real time calls take the time that they take.
type Costs struct {
	// Control, Post and Poll are the times of a verb call, by kind.
	Control, Post, Poll time.Duration
	// Copy, Register and Deregister are the times of operations on memory, and LookUp is that of a
	// lookup in a table of buffers. A simulating program spends them itself.
	Copy, Register, Deregister LinearCost
	LookUp                     time.Duration
}

// LinearCost is a time that grows with the number of bytes.
type LinearCost struct {
	Base               time.Duration
	PicosecondsPerByte int
	Granularity        int // bytes are rounded up to a multiple of it, as to pages; 0 means 1
	// The first CachedBytes take CachedPicosecondsPerByte each instead.
	CachedBytes, CachedPicosecondsPerByte int
}

// Of returns the time of an operation on n bytes.
func (c LinearCost) Of(n int) time.Duration {
	if g := c.Granularity; g > 1 {
		n = (n + g - 1) / g * g
	}
	cached := min(n, c.CachedBytes)
	return c.Base + time.Duration((cached*c.CachedPicosecondsPerByte+(n-cached)*c.PicosecondsPerByte)/1000)*time.Nanosecond
}
