package capture

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
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

// ErrTruncated means that a file ends inside a record, for example because it is still
// being written.
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
	return b, truncatedIfUnexpectedEOF(err)
}

// skip discards n octets.
func (in *input) skip(n int64) error {
	got, err := io.CopyN(io.Discard, in.r, n)
	in.offset += got
	if errors.Is(err, io.EOF) {
		return ErrTruncated
	}
	return err
}

func truncatedIfUnexpectedEOF(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrTruncated
	}
	return err
}

// truncatedIfEOF replaces io.EOF inside a record by ErrTruncated.
func truncatedIfEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return ErrTruncated
	}
	return err
}
