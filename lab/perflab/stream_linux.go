package perflab

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link/udplink/rawbench"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// RawTCPStream sends messages from a to b for a while and returns the goodput in Gb/s,
// from the first send to the last arrival.
func RawTCPStream(a, b rawbench.Endpoint, cfg RawTCPStreamConfig) (gbps float64, err error) {
	if err := cfg.check(); err != nil {
		return 0, err
	}
	client, server, err := connect(a, b, false)
	if err != nil {
		return 0, err
	}
	defer client.close()
	defer server.close()
	out, in := newSender(client, cfg), newReceiver(server, cfg)
	var start, end time.Time
	total := make(chan uint64, 1)
	err = both(a, b, client, server, func() error {
		defer close(total)
		start = time.Now()
		if err := out.run(start.Add(cfg.Duration)); err != nil {
			return fmt.Errorf("TCP stream: %w", err)
		}
		total <- out.sent
		return nil
	}, func() error {
		if err := in.run(total); err != nil {
			return fmt.Errorf("TCP stream: %w", err)
		}
		end = time.Now()
		return nil
	})
	if err != nil {
		return 0, err
	}
	return float64(in.got) * 8 / float64(end.Sub(start).Nanoseconds()), nil
}

// pieces cuts a message.
type pieces struct {
	message int
	left    int // of the message under way
	off     int // in application memory
	memory  []byte
}

func newPieces(message int) pieces {
	return pieces{message: message, memory: make([]byte, max(memoryBytes, message))}
}

// next returns the application memory of the next piece.
func (p *pieces) next() []byte {
	if p.left == 0 {
		p.left = p.message
		if p.off+p.message > len(p.memory) {
			p.off = 0
		}
	}
	n := min(p.left, pieceMax)
	b := p.memory[p.off : p.off+n]
	p.off += n
	p.left -= n
	return b
}

// sender is the sending side.
type sender struct {
	socket
	pieces
	work bool
	each int // pieces that leave at a time
	buf  []byte
	sent uint64 // bytes of messages
}

func newSender(s socket, cfg RawTCPStreamConfig) *sender {
	out := &sender{socket: s, pieces: newPieces(cfg.Bytes), work: cfg.Work, buf: make([]byte, 0, pieceMax+burst*crcBytes)}
	out.each = min(burst, max(1, pieceMax/cfg.Bytes))
	for i := range out.memory {
		out.memory[i] = byte(i * 7)
	}
	return out
}

// run sends until it is late.
func (s *sender) run(until time.Time) error {
	for s.sent == 0 || time.Now().Before(until) {
		b := s.some()
		for spins := 1; len(b) > 0; spins++ {
			n, err := s.send(b)
			switch {
			case err != nil:
				return err
			case n > 0:
				b = b[n:]
			case spins%spinsMax == 0:
				if err := s.wait(unix.POLLOUT); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// some is what to send next.
func (s *sender) some() []byte {
	if !s.work {
		// Without CRCs between them, messages that lie one behind the other are one
		// piece of memory.
		n := s.each * min(s.message, pieceMax)
		if s.off+n > len(s.memory) {
			s.off = 0
		}
		s.off += n
		s.sent += uint64(n)
		return s.memory[s.off-n : s.off]
	}
	all := s.buf
	for range s.each {
		piece := s.next()
		from := len(all)
		all = append(all, piece...)
		all = binary.LittleEndian.AppendUint32(all, crc32.Checksum(all[from:], castagnoli))
		s.sent += uint64(len(piece))
	}
	return all
}

// receiver is the receiving side. TCP cuts where it likes, so it works on what
// there is.
type receiver struct {
	socket
	pieces
	work  bool
	buf   []byte
	piece int    // bytes of the piece that comes; 0: none
	to    []byte // where the rest of it goes
	crc   uint32 // of what has come of it
	tail  []byte // what has come of the CRC behind it
	got   uint64 // bytes of pieces that are whole
}

func newReceiver(s socket, cfg RawTCPStreamConfig) *receiver {
	return &receiver{socket: s, pieces: newPieces(cfg.Bytes), work: cfg.Work, buf: make([]byte, 4*pieceMax), tail: make([]byte, 0, crcBytes)}
}

// run receives until as much has come as was sent.
func (r *receiver) run(total <-chan uint64) error {
	want := ^uint64(0)
	var since time.Time
	for spins := 1; r.got < want; spins++ {
		n, err := r.some()
		if err != nil {
			return err
		}
		if n > 0 {
			spins, since = 0, time.Time{}
			continue
		}
		select {
		case sent, ok := <-total:
			if ok {
				want = sent
			} else {
				total = nil
			}
		default:
		}
		if spins%spinsMax != 0 {
			continue
		}
		if err := r.wait(unix.POLLIN); err != nil {
			return err
		}
		if since.IsZero() {
			since = time.Now()
		} else if time.Since(since) > patience {
			return fmt.Errorf("%d bytes came, and no more within %v", r.got, patience)
		}
	}
	return nil
}

// some receives what there is, but not more than a bit.
func (r *receiver) some() (int, error) {
	if !r.work {
		n, err := r.receive(r.memory[:memoryBytes])
		r.got += uint64(n)
		return n, err
	}
	n, err := r.receive(r.buf)
	if err != nil {
		return n, err
	}
	return n, r.open(r.buf[:n])
}

// open works on bytes of pieces.
func (r *receiver) open(b []byte) error {
	for len(b) > 0 {
		if r.piece == 0 {
			r.to = r.next()
			r.piece = len(r.to)
		}
		if n := min(len(r.to), len(b)); n > 0 {
			r.crc = crc32.Update(r.crc, castagnoli, b[:n])
			copy(r.to, b[:n])
			r.to, b = r.to[n:], b[n:]
			continue
		}
		n := min(crcBytes-len(r.tail), len(b))
		r.tail, b = append(r.tail, b[:n]...), b[n:]
		if len(r.tail) < crcBytes {
			continue
		}
		if sum := binary.LittleEndian.Uint32(r.tail); sum != r.crc {
			return fmt.Errorf("a piece with CRC %08x came with %08x", r.crc, sum)
		}
		r.got += uint64(r.piece)
		r.piece, r.crc, r.tail = 0, 0, r.tail[:0]
	}
	return nil
}
