package pcaplink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

const (
	sectionBlock = 0x0A0D0D0A // reads the same in both byte orders
	orderMagic   = 0x1A2B3C4D
	minBlock     = 12 // type, length, length
)

// Trim truncates a pcapng file after its last complete block: a writer that was killed may
// have written part of a block. A file that does not begin with a section block becomes
// empty.
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
	whole, err := endOfLastBlock(f, info.Size())
	if err == nil && whole < info.Size() {
		err = f.Truncate(whole)
	}
	if err != nil {
		return fmt.Errorf("trim %s: %w", name, err)
	}
	return nil
}

// endOfLastBlock returns the offset after the last complete block.
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
		var again [4]byte
		if _, err := f.ReadAt(again[:], end+length-4); err != nil {
			return end, err
		}
		if int64(order.Uint32(again[:])) != length {
			return end, nil
		}
		end += length
	}
	return end, nil
}
