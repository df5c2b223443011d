package capture

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/fabrictest/fabrictest/internal/cli"
)

// Limits on sizes in a file, against corrupt values. pcapgo does not read such files safely:
// as of v1.7.4 its reader panics on a resolution of 10^-64 and on packet flags of one octet,
// and allocates what a packet claims to have.
const (
	maxPacketLen  = 1 << 18 // MAXIMUM_SNAPLEN of libpcap
	maxBlockLen   = 1 << 20 // of decoded pcapng blocks
	maxInterfaces = 1 << 12
	maxComments   = 64 // per packet
)

// CorruptError is a file that cannot be read further.
type CorruptError struct {
	Offset int64 // of the record in the (decompressed) file
	Packet int   // number of packets before it
	Err    error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("damaged at byte %d, after %d packets: %v", e.Offset, e.Packet, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// ErrTruncated means that a file ends inside a record. It may still be written.
var ErrTruncated = errors.New("the file ends in the middle of a record")

// ErrFormat means that a file is not a capture.
var ErrFormat = errors.New("neither pcap nor pcapng")

// input reads a file, decompresses it, and counts the octets read.
type input struct {
	r      *bufio.Reader
	offset int64
	buf    []byte // reused by read
}

const gzipMagic = "\x1f\x8b"

// newInput returns the input of a file that may be compressed.
func newInput(r io.Reader) (*input, error) {
	in := &input{r: bufio.NewReaderSize(r, 1<<16)}
	if magic, _ := in.r.Peek(len(gzipMagic)); string(magic) == gzipMagic {
		z, err := gzip.NewReader(in.r)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		in.r = bufio.NewReaderSize(z, 1<<16)
	}
	return in, nil
}

// read returns the next n octets, valid until the next call. At the end of the file it
// returns io.EOF, or ErrTruncated if there are fewer than n.
func (in *input) read(n int) ([]byte, error) {
	if cap(in.buf) < n {
		in.buf = make([]byte, max(n, 4096))
	}
	b := in.buf[:n]
	got, err := io.ReadFull(in.r, b)
	in.offset += int64(got)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = ErrTruncated
	}
	return b, err
}

// truncatedIfEOF replaces io.EOF inside a record by ErrTruncated.
func truncatedIfEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return ErrTruncated
	}
	return err
}

// Stdin is the name of the standard input among the files of PrintFiles.
const Stdin = "-"

// Streams are the input and outputs of PrintFiles.
type Streams struct {
	In       io.Reader // for Stdin
	Out, Err io.Writer
}

// PrintFiles decodes captures one after the other. It prints an error in a capture and goes on with
// the next; ok is false if there was one. err is an error of writing the output.
func PrintFiles(ctx context.Context, streams Streams, files []string, opts PrintOptions) (ok bool, err error) {
	for _, name := range files {
		opts.Live = opts.Live || name == Stdin // which may be a pipe
	}
	p := NewPrinter(streams.Out, opts)
	ok = true
	for _, name := range files {
		if len(files) > 1 && !opts.JSON && !opts.StatsOnly {
			fmt.Fprintf(p.w, "==> %s <==\n", cli.PrintableLine(name)) // Finish returns write errors
		}
		err := p.printFile(ctx, streams.In, name)
		if errors.Is(err, context.Canceled) { // by Ctrl-C; the counts are still printed
			break
		}
		if err != nil {
			fmt.Fprintf(streams.Err, "fabrictest: %s: %v\n", name, err)
			ok = false
		}
	}
	return ok, p.Finish()
}

// printFile prints the capture with this name, or the one on stdin.
func (p *Printer) printFile(ctx context.Context, stdin io.Reader, name string) error {
	r := stdin
	if name != Stdin {
		f, err := cli.OpenFile(name)
		if err != nil {
			var path *os.PathError
			if errors.As(err, &path) { // its message repeats the name
				err = path.Err
			}
			if errors.Is(err, cli.ErrNotRegular) {
				err = fmt.Errorf("%w, or - to decode the standard input, as in 'fabrictest capture show - < %s'", err, cli.Quote(name))
			}
			return err
		}
		defer f.Close()
		r = f
	}
	s, err := Open(r)
	if err != nil {
		return err
	}
	return p.Show(ctx, s)
}

// lruCache is an approximate LRU cache with two generations: a used entry moves to the
// young one, and when that is full, the old one is evicted.
type lruCache[K comparable, V any] struct {
	young, old map[K]*V
	limit      int      // entries per generation
	onEvict    func(*V) // may be nil
}

// newLRUCache returns a cache of at most limit values. onEvict, unless it is nil, is called with a
// value that is removed.
func newLRUCache[K comparable, V any](limit int, onEvict func(*V)) *lruCache[K, V] {
	return &lruCache[K, V]{young: map[K]*V{}, limit: max(limit/2, 1), onEvict: onEvict}
}

// get returns the value of k. It adds a zero value if there is none. When the young half is full,
// it evicts the old half, and the young one becomes the old one.
func (c *lruCache[K, V]) get(k K) *V {
	if v, ok := c.young[k]; ok {
		return v
	}
	v, ok := c.old[k]
	if ok {
		delete(c.old, k)
	} else {
		v = new(V)
	}
	if len(c.young) >= c.limit {
		if c.onEvict != nil {
			for _, evicted := range c.old {
				c.onEvict(evicted)
			}
		}
		c.young, c.old = make(map[K]*V), c.young
	}
	c.young[k] = v
	return v
}
