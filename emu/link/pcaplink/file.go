package pcaplink

import (
	"bufio"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/internal/pcapng"
)

// FileOptions are those of a File.
type FileOptions struct {
	// LinkType is the type of the packets' first header.
	LinkType pcapng.LinkType
	// Epoch is the date at time 0; the Unix epoch if zero.
	Epoch time.Time
	// Comment is the comment of the section, for instance the command that replays the run.
	Comment string
	// MaxBytes bounds the size of the file if it is positive. Packets beyond it are counted
	// as dropped in the interface statistics.
	MaxBytes int64
	// BufferBytes is the size of the write buffer. A process that is killed loses its contents.
	BufferBytes int
	// OnError, if not nil, is called with the first error, from the goroutine that writes.
	OnError func(error)
	// OnLimit, if not nil, is called when MaxBytes is reached.
	OnLimit func()
}

// File writes a pcapng file with nanosecond timestamps. After an error it drops all
// packets; OnError is called, and Close returns the error.
type File struct {
	mu           sync.Mutex
	out          *bufio.Writer
	opts         FileOptions
	ng           *pcapng.Writer // nil until there is an interface
	intfs        []packetCounts
	count        uint64 // packets written
	bytes        int64  // upper bound of the size of the file so far
	longest      int    // longest packet so far
	limitReached bool
	closed       bool
	err          error
}

// packetCounts counts the packets of one interface.
type packetCounts struct{ written, dropped uint64 }

// Packet is a packet with its metadata.
type Packet struct {
	Interface int
	At        time.Duration // since the epoch
	Bytes     []byte
	Comment   string
	Direction pcapng.Direction // Unknown without flags
}

// NewFile returns a File that writes to w. The file is complete after Close.
func NewFile(w io.Writer, opts FileOptions) *File {
	if opts.Epoch.IsZero() {
		opts.Epoch = time.Unix(0, 0)
	}
	return &File{out: bufio.NewWriterSize(w, opts.BufferBytes), opts: opts}
}

// AddInterface adds an interface to the file and returns its index, for Packet.Interface. After an
// error or Close it returns 0.
func (f *File) AddInterface(name string) (id int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil || f.closed {
		return 0
	}
	id, err := f.addInterface(name)
	f.setError(err)
	return id
}

// addInterface adds an interface to the file and returns its index; for the first, it also writes
// the section block. The caller holds the lock.
func (f *File) addInterface(name string) (id int, err error) {
	const maxBlock = 128 // upper bound of an interface, statistics or section block without its texts
	f.intfs = append(f.intfs, packetCounts{})
	// Reserve space for this block, and for the statistics block of the interface: Close writes it
	// if the file has reached its size limit.
	f.bytes += int64(2*maxBlock + len(name))
	if f.ng == nil {
		// Reserve space for the section block, and for the comment of the last packet.
		f.bytes += int64(maxBlock + len(f.opts.Comment) + len(limitComment))
		f.ng = pcapng.NewWriter(f.out)
		// Hardware and OS are left out, so that the same run writes the same file on every machine.
		if err := f.ng.WriteSection("fabrictest", f.opts.Comment); err != nil {
			return 0, err
		}
	}
	return f.ng.AddInterface(name, f.opts.LinkType)
}

// Write adds a packet. A packet beyond the size limit is only counted as dropped. After an error or
// Close, Write ignores the packet.
func (f *File) Write(p Packet) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil || f.closed {
		return
	}
	if f.limitReached || !f.reserve(&p) {
		f.intfs[p.Interface].dropped++
		return
	}
	f.setError(f.ng.WritePacket(&pcapng.Packet{
		Interface: p.Interface, At: f.opts.Epoch.Add(p.At), Bytes: p.Bytes, Comment: p.Comment, Direction: p.Direction,
	}))
	f.intfs[p.Interface].written++
	f.count++
}

// reserve reserves space for p, and reports whether p fits within MaxBytes. If the next packet
// might not fit, the limit is reached: OnLimit is called, and p, the last packet if it fits, gets a
// comment that says so.
func (f *File) reserve(p *Packet) bool {
	if f.opts.MaxBytes <= 0 {
		return true
	}
	f.longest = max(f.longest, len(p.Bytes))
	size := blockBytes(len(p.Bytes), p)
	// A guess of the next packet's length, rather too long: twice the longest so far, and no less than
	// minGuess or, if that is less, a sixteenth of the limit.
	nextLength := max(2*f.longest, int(min(minGuess, f.opts.MaxBytes/16)))
	f.limitReached = f.bytes+size+blockBytes(nextLength, p) > f.opts.MaxBytes
	fits := f.bytes+size <= f.opts.MaxBytes
	if f.limitReached {
		p.Comment = limitComment // not in size: addInterface has reserved space for it
		if f.opts.OnLimit != nil {
			f.opts.OnLimit()
		}
	}
	f.bytes += size
	return fits
}

// minGuess is the length of the longest IP packet in an Ethernet frame.
const minGuess = 1<<16 + 14

// limitComment is the comment of the last packet of a file that has reached its limit.
const limitComment = "fabrictest: the capture has reached its size limit; later packets are counted as dropped"

// blockBytes returns the size of a block with length bytes of data, and the comment and flags of p.
func blockBytes(length int, p *Packet) int64 {
	padded := func(n int) int { return (n + 3) &^ 3 }
	size, options := packetHead+padded(length)+4, 0 // 4: the second block length
	if p.Comment != "" {
		options += 4 + padded(len(p.Comment)) // code, length and value
	}
	if p.Direction != pcapng.Unknown {
		options += 8 // code, length and value
	}
	if options > 0 {
		options += 4 // opt_endofopt
	}
	return int64(size + options)
}

// Fail stops the file with an error, which Close returns. Later packets are ignored.
func (f *File) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.setError(err)
}

// setError stores the first error and calls OnError. It ignores nil and later errors.
func (f *File) setError(err error) {
	if f.err != nil || err == nil {
		return
	}
	f.err = fmt.Errorf("capture, after %d packets: %w", f.count, err)
	if f.opts.OnError != nil {
		f.opts.OnError(f.err)
	}
}

// Flush writes buffered packets to the underlying writer, and returns the first error of the file.
func (f *File) Flush() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.flush()
}

// flush writes buffered packets and returns the first error of the file. The caller holds the lock.
func (f *File) flush() error {
	if f.ng != nil && f.err == nil {
		f.setError(f.ng.Flush())
	}
	return f.err
}

// Close completes the file, adds the number of dropped packets if the size limit was reached, and
// returns the first error. It does not close the underlying writer. Later packets are ignored.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return f.err
	}
	if f.ng == nil { // some readers reject files without an interface
		_, err := f.addInterface("none")
		f.setError(err)
	}
	if f.limitReached && f.err == nil {
		for id, n := range f.intfs {
			f.setError(f.ng.WriteStats(id, f.opts.Epoch, n.written+n.dropped, n.dropped))
		}
	}
	f.closed = true
	return f.flush()
}
