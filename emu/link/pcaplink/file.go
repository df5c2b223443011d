package pcaplink

import (
	"bufio"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// FileOptions are those of a File.
type FileOptions struct {
	// LinkType says what packets begin with.
	LinkType layers.LinkType
	// Epoch is the date at time 0; if zero, that of Unix.
	Epoch time.Time
	// Comment is kept in the file, for the command that replays it, say.
	Comment string
	// MaxBytes bounds the size of the file; 0 or less does not. Packets beyond it
	// are left out; how many, the file says at its end.
	MaxBytes int64
	// BufferBytes is what is gathered before it is written. What a writer that is
	// killed had gathered is lost.
	BufferBytes int
	// OnError, if not nil, is told once why the file has ended early.
	OnError func(error)
	// OnLimit, if not nil, is told once that MaxBytes is reached.
	OnLimit func()
}

// File is a pcapng file being written, with nanoseconds. One that fails (a full
// disk) does not disturb whoever has packets: writing stops, OnError is told, and
// Close says why.
type File struct {
	mu           sync.Mutex
	out          *bufio.Writer
	opts         FileOptions
	ng           *pcapgo.NgWriter // nil until there is an interface
	intfs        []packetCounts
	count        uint64
	bytes        int64
	longest      int // packet so far
	limitReached bool
	closed       bool
	err          error
}

// counts are the packets of one interface.
type packetCounts struct{ written, dropped uint64 }

// Packet is one, with what the file says of it.
type Packet struct {
	Interface int
	At        time.Duration // since the epoch
	Bytes     []byte
	Comment   string
	Flags     *pcapgo.NgEpbFlags // may be nil
}

// NewFile starts a file on w. Nothing is complete in w until Close.
func NewFile(w io.Writer, opts FileOptions) *File {
	if opts.Epoch.IsZero() {
		opts.Epoch = time.Unix(0, 0)
	}
	return &File{out: bufio.NewWriterSize(w, opts.BufferBytes), opts: opts}
}

// Interface adds an interface to the file and returns its number.
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

func (f *File) addInterface(name string) (id int, err error) {
	const most = 128 // of a block for an interface, besides its name; of the section too
	intf := pcapgo.NgInterface{Name: name, LinkType: f.opts.LinkType}
	f.intfs = append(f.intfs, packetCounts{})
	// A block with counts follows for each, if the file is cut.
	f.bytes += int64(2*most + len(name))
	if f.ng != nil {
		return f.ng.AddInterface(intf)
	}
	f.bytes += int64(most + len(f.opts.Comment) + len(limitComment))
	// Neither machine nor system is named: the file depends on the run alone.
	info := pcapgo.NgSectionInfo{Application: "fabrictest", Comment: f.opts.Comment}
	f.ng, err = pcapgo.NewNgWriterInterface(f.out, intf, pcapgo.NgWriterOptions{SectionInfo: info})
	return 0, err
}

// Write adds a packet.
func (f *File) Write(p Packet) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil || f.closed {
		return
	}
	if f.limitReached || !f.fits(&p) {
		f.intfs[p.Interface].dropped++
		return
	}
	opts := pcapgo.NgPacketOptions{Flags: p.Flags}
	if p.Comment != "" {
		opts.Comments = []string{p.Comment}
	}
	f.setError(f.ng.WritePacketWithOptions(gopacket.CaptureInfo{
		Timestamp:      f.opts.Epoch.Add(p.At),
		CaptureLength:  len(p.Bytes),
		Length:         len(p.Bytes),
		InterfaceIndex: p.Interface,
	}, p.Bytes, opts))
	f.intfs[p.Interface].written++
	f.count++
}

// fits reports whether the file has room for p. The packet behind which there may
// be no room for another is the last, and says so.
func (f *File) fits(p *Packet) bool {
	if f.opts.MaxBytes <= 0 {
		return true
	}
	f.longest = max(f.longest, len(p.Bytes))
	size := blockBytes(len(p.Bytes), p)
	next := max(2*f.longest, int(min(longestPacket, f.opts.MaxBytes/16)))
	f.limitReached = f.bytes+size+blockBytes(next, p) > f.opts.MaxBytes
	fits := f.bytes+size <= f.opts.MaxBytes
	if f.limitReached {
		p.Comment = limitComment
		if f.opts.OnLimit != nil {
			f.opts.OnLimit()
		}
	}
	f.bytes += size
	return fits
}

// longestPacket is that of IP, in an Ethernet frame.
const longestPacket = 1<<16 + 14

// cutComment is the comment of the last packet of a file that has reached its limit.
const limitComment = "fabrictest: the capture ends here, its size is limited; what came later is counted as dropped"

// blockBytes is what a packet takes in the file.
func blockBytes(kept int, p *Packet) int64 {
	padded := func(n int) int { return (n + 3) &^ 3 }
	size, options := 32+padded(kept), 0
	if p.Comment != "" {
		options += 4 + padded(len(p.Comment))
	}
	if p.Flags != nil {
		options += 8
	}
	if options > 0 {
		options += 4 // where they end
	}
	return int64(size + options)
}

// Fail ends the file with an error of the caller's: a packet that is none.
func (f *File) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.setError(err)
}

// keep remembers the first error, and tells of it.
func (f *File) setError(err error) {
	if f.err != nil || err == nil {
		return
	}
	f.err = fmt.Errorf("capture, after %d packets: %w", f.count, err)
	if f.opts.OnError != nil {
		f.opts.OnError(f.err)
	}
}

// Flush brings everything written so far to the file.
func (f *File) Flush() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.flush()
}

func (f *File) flush() error {
	if f.ng != nil && f.err == nil {
		f.setError(f.ng.Flush())
	}
	return f.err
}

// Close completes the file and returns the first error there was; that it was cut
// is none. It does not close the writer underneath. What is written afterwards is
// not there.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return f.err
	}
	if f.ng == nil { // a file without any interface is no file to some readers
		_, err := f.addInterface("none")
		f.setError(err)
	}
	if f.limitReached && f.err == nil {
		for id, n := range f.intfs {
			f.setError(f.ng.WriteInterfaceStats(id, pcapgo.NgInterfaceStatistics{
				LastUpdate: f.opts.Epoch, PacketsReceived: n.written + n.dropped, PacketsDropped: n.dropped,
			}))
		}
	}
	f.closed = true
	return f.flush()
}
