package verbs

import "time"

// Costs is the CPU time of a host for verb calls, for operations on memory and for messages. The
// simulator lets it pass in virtual time; in real time calls take the time that they take.
type Costs struct {
	// Control, Post and Poll are the times of a verb call, by kind. Post is that of a doorbell.
	Control, Post, Poll time.Duration
	// Inline is the additional time to post a work request with up to InlineBytes of data, which
	// the CPU writes to the NIC.
	Inline      LinearCost
	InlineBytes int
	// Register and Deregister are the additional times of calls that do so.
	Register, Deregister LinearCost
	// Wake is the time from an event until the program that slept for it runs.
	Wake time.Duration

	// The following are times of a program: it spends them itself. Copy is that of a copy between
	// two buffers, LookUp that of a lookup in a table of buffers, PollMemory that of a look at a
	// buffer to which a peer may have written, and Message that of a library of message passing for
	// each message sent, and for each received.
	Copy                        LinearCost
	LookUp, PollMemory, Message time.Duration
}

// Work is a kind of work for which a program spends a time of [Costs] itself.
type Work uint8

// The kinds of work.
const (
	WorkCopy Work = iota
	WorkLookUp
	WorkPollMemory
	WorkMessage
	WorkWake
)

// LinearCost is a time that grows with the number of bytes.
type LinearCost struct {
	Base               time.Duration
	PicosecondsPerByte int
	Granularity        int // bytes are rounded up to a multiple of it, as to pages; 0 means 1
	// The first CachedBytes take CachedPicosecondsPerByte each instead.
	CachedBytes, CachedPicosecondsPerByte int
}

// Of returns the time of an operation on n bytes, which it rounds up to a multiple of Granularity.
// The first CachedBytes have their own time for each byte.
func (c LinearCost) Of(n int) time.Duration {
	if g := c.Granularity; g > 1 {
		n = (n + g - 1) / g * g
	}
	cached := min(n, c.CachedBytes)
	return c.Base + time.Duration((cached*c.CachedPicosecondsPerByte+(n-cached)*c.PicosecondsPerByte)/1000)*time.Nanosecond
}
