// Package pcapng writes pcapng files: little endian, with one section and timestamps in nanoseconds.
//
// The packages of gopacket write them too, but have tables of 5 MB, which each process fills when it
// starts and its garbage collector scans in each cycle. Tests read the files with gopacket.
package pcapng

import (
	"bufio"
	"encoding/binary"
	"io"
	"time"
)

// LinkType is the type of the first header of packets.
type LinkType uint16

// The link types.
const (
	Ethernet LinkType = 1
	RawIP    LinkType = 101
)

// Direction is the direction of a packet at its interface.
type Direction uint8

// The directions, as in the flags of a packet.
const (
	Unknown Direction = iota
	Inbound
	Outbound
)

// Block types, and codes of options.
const (
	sectionBlock   = 0x0A0D0D0A
	interfaceBlock = 1
	statsBlock     = 5
	packetBlock    = 6

	endOfOptions      = 0
	commentOption     = 1
	applicationOption = 4
	nameOption        = 2 // of an interface
	resolutionOption  = 9
	flagsOption       = 2 // of a packet
	receivedOption    = 4 // of statistics
	droppedOption     = 5
)

// Writer writes a file: the section, then interfaces, and packets of those.
type Writer struct {
	out        *bufio.Writer
	block      []byte // buffer of the block being written
	hasOptions bool
	interfaces int
}

// NewWriter returns a Writer to w. It buffers unless w is a bufio.Writer with a buffer large enough.
func NewWriter(w io.Writer) *Writer { return &Writer{out: bufio.NewWriter(w)} }

// Flush writes the buffer. It is needed at the end.
func (w *Writer) Flush() error { return w.out.Flush() }

// WriteSection writes the start of the file. Empty texts are left out.
func (w *Writer) WriteSection(application, comment string) error {
	const byteOrder, major, minor, unknownLength = 0x1A2B3C4D, 1, 0, 0xFFFFFFFFFFFFFFFF
	w.start(sectionBlock)
	w.uint32(byteOrder)
	w.uint32(major | minor<<16)
	w.block = binary.LittleEndian.AppendUint64(w.block, unknownLength)
	w.text(applicationOption, application)
	w.text(commentOption, comment)
	return w.end()
}

// AddInterface adds an interface and returns its number. An empty name is left out.
func (w *Writer) AddInterface(name string, t LinkType) (id int, err error) {
	const unlimited, nanoseconds = 0, 9 // the longest packet, and the power of ten of the resolution
	id = w.interfaces
	w.interfaces++
	w.start(interfaceBlock)
	w.uint32(uint32(t))
	w.uint32(unlimited)
	w.text(nameOption, name)
	w.option(resolutionOption, nanoseconds)
	return id, w.end()
}

// Packet is a packet with its metadata.
type Packet struct {
	Interface int
	At        time.Time
	Bytes     []byte
	Comment   string // shorter than 64 KiB; empty for none
	Direction Direction
}

// WritePacket writes a packet.
func (w *Writer) WritePacket(p *Packet) error {
	w.start(packetBlock)
	w.uint32(uint32(p.Interface))
	w.time(p.At)
	w.uint32(uint32(len(p.Bytes))) // captured
	w.uint32(uint32(len(p.Bytes))) // on the wire
	w.padded(p.Bytes)
	w.text(commentOption, p.Comment)
	if p.Direction != Unknown {
		w.optionHeader(flagsOption, 4)
		w.uint32(uint32(p.Direction))
	}
	return w.end()
}

// WriteStats writes how many packets an interface has received, and how many of those are not in the
// file.
func (w *Writer) WriteStats(id int, at time.Time, received, dropped uint64) error {
	w.start(statsBlock)
	w.uint32(uint32(id))
	w.time(at)
	w.optionHeader(droppedOption, 8)
	w.block = binary.LittleEndian.AppendUint64(w.block, dropped)
	w.optionHeader(receivedOption, 8)
	w.block = binary.LittleEndian.AppendUint64(w.block, received)
	return w.end()
}

// start begins a block. Its length follows in end.
func (w *Writer) start(kind uint32) {
	w.block, w.hasOptions = w.block[:0], false
	w.uint32(kind)
	w.uint32(0)
}

// end ends the options and the block, and writes it.
func (w *Writer) end() error {
	if w.hasOptions {
		w.optionHeader(endOfOptions, 0)
	}
	n := uint32(len(w.block) + 4)
	w.uint32(n)
	binary.LittleEndian.PutUint32(w.block[4:], n)
	_, err := w.out.Write(w.block)
	return err
}

func (w *Writer) uint32(v uint32) { w.block = binary.LittleEndian.AppendUint32(w.block, v) }

// time appends a timestamp: nanoseconds, the high half first.
func (w *Writer) time(t time.Time) {
	ns := uint64(t.UnixNano())
	w.uint32(uint32(ns >> 32))
	w.uint32(uint32(ns))
}

// padded appends bytes, and zeros up to a multiple of four.
func (w *Writer) padded(b []byte) {
	w.block = append(w.block, b...)
	w.block = append(w.block, make([]byte, -len(b)&3)...)
}

func (w *Writer) optionHeader(code uint16, length int) {
	w.hasOptions = true
	w.uint32(uint32(code) | uint32(length)<<16)
}

// option appends an option of one byte.
func (w *Writer) option(code uint16, v byte) {
	w.optionHeader(code, 1)
	w.padded([]byte{v})
}

// text appends an option, unless the text is empty.
func (w *Writer) text(code uint16, text string) {
	if text != "" {
		w.optionHeader(code, len(text))
		w.padded([]byte(text))
	}
}
