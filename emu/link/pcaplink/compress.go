package pcaplink

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"
)

// CompressedSuffix is the suffix of the names of compressed captures. Wireshark, tshark
// and `fabrictest capture show` open them.
const CompressedSuffix = ".gz"

// Compress replaces a complete pcapng file by a gzip-compressed one, and returns its name and size.
// comment, if not nil, returns a comment to add to packet i, counted from 0; empty for none. If
// Compress fails the file is unchanged.
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
	info, statErr := out.Stat()
	if err = errors.Join(err, statErr, out.Close()); err != nil {
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

// copyBlocks copies the blocks of a pcapng file from r to w, and adds comment(i) to packet i if
// comment is not nil. The file is little-endian, as [File] writes it.
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
		const maxBlock = 1 << 24 // far more than a packet of 64 KiB
		if size < minBlock || size > maxBlock {
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

// withComment adds a comment to the options of an enhanced packet block. It may change block.
func withComment(block []byte, comment string) []byte {
	if comment == "" {
		return block
	}
	le := binary.LittleEndian
	padded := func(n int) int { return (n + 3) &^ 3 }
	dataLength := int(le.Uint32(block[20:]))   // the field Captured Packet Length
	options := packetHead + padded(dataLength) // offset of the options, after the packet data
	end := len(block) - 4                      // offset of the second block length
	if end > options {
		end -= 4 // opt_endofopt, which is written again below
	}
	block = le.AppendUint16(block[:end], optComment)
	block = le.AppendUint16(block, uint16(len(comment)))
	block = append(block, comment...)
	block = append(block, make([]byte, padded(len(comment))-len(comment))...)
	block = le.AppendUint32(block, 0) // opt_endofopt
	size := uint32(len(block) + 4)
	le.PutUint32(block[4:], size)
	return le.AppendUint32(block, size)
}

const (
	sectionBlock = 0x0A0D0D0A // reads the same in both byte orders
	orderMagic   = 0x1A2B3C4D
	minBlock     = 12 // type, length, length
)

// Trim truncates a pcapng file after its last complete block: a writer that was killed may have
// written part of a block. A file that does not begin with a section block becomes empty.
func Trim(name string) (err error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	end, err := endOfLastBlock(f, info.Size())
	if err == nil && end < info.Size() {
		err = f.Truncate(end)
	}
	if err != nil {
		return fmt.Errorf("trim %s: %w", name, err)
	}
	return nil
}

// endOfLastBlock returns the offset after the last complete block of a pcapng file of size bytes.
// It stops at the first invalid block, and returns 0 if the file does not begin with a section
// block.
func endOfLastBlock(f io.ReaderAt, size int64) (end int64, err error) {
	var order binary.ByteOrder = binary.LittleEndian
	var head [minBlock]byte // type, length, and the byte order of a section
	for end+minBlock <= size {
		if _, err := f.ReadAt(head[:], end); err != nil {
			return end, err
		}
		switch {
		case order.Uint32(head[:]) != sectionBlock:
			if end == 0 {
				return 0, nil
			}
		case binary.LittleEndian.Uint32(head[8:]) == orderMagic:
			order = binary.LittleEndian
		case binary.BigEndian.Uint32(head[8:]) == orderMagic:
			order = binary.BigEndian
		default:
			return end, nil
		}
		length := int64(order.Uint32(head[4:]))
		if length < minBlock || length%4 != 0 || end+length > size {
			return end, nil
		}
		var secondLength [4]byte // at the end of the block
		if _, err := f.ReadAt(secondLength[:], end+length-4); err != nil {
			return end, err
		}
		if int64(order.Uint32(secondLength[:])) != length {
			return end, nil
		}
		end += length
	}
	return end, nil
}
