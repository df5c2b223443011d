package capture

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// Limits on what a file may claim. A capture of RDMA holds nothing near them.
const (
	maxPacketLen  = 1 << 18 // what libpcap takes at most
	maxBlockLen   = 1 << 20 // of those blocks of pcapng that are looked at
	maxInterfaces = 1 << 12
	maxComments   = 64 // of one packet
)

// CorruptError says where a file cannot be read further.
type CorruptError struct {
	Offset int64 // of the record, from the start of the file (once unpacked)
	Packet int   // how many packets came before
	Err    error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("damaged at byte %d, after %d packets: %v", e.Offset, e.Packet, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// ErrTruncated is the damage of a file that ends inside a record: it was cut off, or
// whoever writes it is not done.
var ErrTruncated = errors.New("the file ends in the middle of a record")

// ErrFormat is what Open says of something that is no capture.
var ErrFormat = errors.New("neither pcap nor pcapng")

// input is a file with a count of what has been read.
type input struct {
	r      *bufio.Reader
	offset int64
	buf    []byte // what read returns; reused
}

const gzipMagic = "\x1f\x8b"

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

// read returns the next n octets, valid until the next read. At the end of the
// file it returns io.EOF, within n octets ErrCut.
func (in *input) read(n int) ([]byte, error) {
	if cap(in.buf) < n {
		in.buf = make([]byte, max(n, 4096))
	}
	b := in.buf[:n]
	got, err := io.ReadFull(in.r, b)
	in.offset += int64(got)
	return b, cutIs(err)
}

// skip passes over n octets.
func (in *input) skip(n int64) error {
	got, err := io.CopyN(io.Discard, in.r, n)
	in.offset += got
	if errors.Is(err, io.EOF) {
		return ErrTruncated
	}
	return err
}

func cutIs(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrTruncated
	}
	return err
}

// within turns the end of the file, where a record has begun, into damage.
func within(err error) error {
	if errors.Is(err, io.EOF) {
		return ErrTruncated
	}
	return err
}
