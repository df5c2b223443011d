package pcaplink

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// CompressedSuffix is the suffix of the names of compressed captures. Wireshark, tshark
// and `fabrictest capture show` open them.
const CompressedSuffix = ".gz"

// Compress replaces a complete file by a compressed one, and returns the new name and size.
// comment, if not nil, returns a comment for packet i. If Compress fails the file is
// unchanged.
func Compress(name string, comment func(i int) string) (compressed string, size int64, err error) {
	in, err := os.Open(name)
	if err != nil {
		return "", 0, err
	}
	defer in.Close()
	out, err := os.Create(name + CompressedSuffix)
	if err != nil {
		return "", 0, fmt.Errorf("compress %s: %w", name, err)
	}
	z, _ := gzip.NewWriterLevel(out, gzip.BestSpeed) // the level is valid
	err = copyBlocks(z, bufio.NewReaderSize(in, 1<<16), comment)
	err = errors.Join(err, z.Close())
	info, serr := out.Stat()
	if err = errors.Join(err, serr, out.Close()); err != nil {
		_ = os.Remove(out.Name())
		return "", 0, fmt.Errorf("compress %s: %w", name, err)
	}
	return out.Name(), info.Size(), os.Remove(name)
}

const (
	packetBlock = 6  // an enhanced packet block
	packetHead  = 28 // bytes before the packet data
	optComment  = 1
)

// copyBlocks copies a pcapng file that [File] wrote, and adds comment(i) to packet i.
func copyBlocks(w io.Writer, r io.Reader, comment func(i int) string) error {
	var block []byte
	le := binary.LittleEndian
	for i := 0; ; {
		var head [8]byte
		if _, err := io.ReadFull(r, head[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		size := int(le.Uint32(head[4:]))
		if size < minBlock || size > 1<<24 {
			return fmt.Errorf("invalid block length %d", size)
		}
		block = append(block[:0], head[:]...)
		block = append(block, make([]byte, size-len(head))...)
		if _, err := io.ReadFull(r, block[len(head):]); err != nil {
			return err
		}
		if le.Uint32(head[:]) == packetBlock {
			if comment != nil {
				block = withComment(block, comment(i))
			}
			i++
		}
		if _, err := w.Write(block); err != nil {
			return err
		}
	}
}

// withComment adds a comment to the options of a packet block.
func withComment(block []byte, comment string) []byte {
	if comment == "" {
		return block
	}
	le := binary.LittleEndian
	padded := func(n int) int { return (n + 3) &^ 3 }
	options := packetHead + padded(int(le.Uint32(block[20:])))
	end := len(block) - 4
	if end > options {
		end -= 4 // opt_endofopt
	}
	block = le.AppendUint16(block[:end], optComment)
	block = le.AppendUint16(block, uint16(len(comment)))
	block = append(block, comment...)
	block = append(block, make([]byte, padded(len(comment))-len(comment))...)
	block = le.AppendUint32(block, 0)
	size := uint32(len(block) + 4)
	le.PutUint32(block[4:], size)
	return le.AppendUint32(block, size)
}
