package carrier

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// Where there is no RDMA, data goes in packets: puts say where each belongs; a get
// wishes for data, which comes in gots with the number of the wish.

// stream is data for a peer of which not all has left.
type stream struct {
	move *move  // whose it is; nil if the peer wished for it
	wish uint32 // then
	data []byte
	done int
	addr uint64
	key  uint32
}

// maxStreams is how many wishes of a peer are fulfilled at a time.
const maxStreams = 4096

// inPackets begins a move without RDMA.
func (c *Carrier) inPackets(m *move) {
	p := m.peer
	if m.op == OpRead {
		m.left = m.n
		c.wishFor(p, m, m.n)
		return
	}
	p.streams = append(p.streams, &stream{move: m, data: m.mem.buf[m.off : m.off+m.n], addr: m.at.Addr, key: m.at.Keys[0]})
	c.isBusy(p)
}

// wishFor asks a peer for n bytes of a move.
func (c *Carrier) wishFor(p *peer, m *move, n int) {
	if p.wishes == nil {
		p.wishes = make(map[uint32]*move)
	}
	p.wish++
	p.wishes[p.wish] = m
	le := binary.LittleEndian
	b := le.AppendUint32(nil, p.wish)
	b = le.AppendUint64(b, m.at.Addr)
	b = le.AppendUint32(b, m.at.Keys[0])
	b = le.AppendUint64(b, uint64(n))
	if len(p.queue) > 0 || !c.leave(p, get, nil, b) {
		c.enqueue(p, outgoing{kind: get, data: b})
	}
}

// pumpStreams lets leave what has room.
func (c *Carrier) pumpStreams(p *peer) (moved bool) {
	for len(p.streams) > 0 && p.lost == nil {
		s := p.streams[0]
		for s.done < len(s.data) || len(s.data) == 0 && s.move == nil {
			if !c.leavePiece(p, s) {
				return moved
			}
			moved = true
			if len(s.data) == 0 {
				break
			}
		}
		if p.lost != nil {
			return moved
		}
		p.streams = p.streams[1:]
		switch m := s.move; {
		case m == nil:
		case m.says:
			c.Send(p.rank, &m.then, nil, nil)
			c.endMove(m, nil)
		default: // it has ended when the peer has it: who asks for nothing is answered then
			m.left = 0
			c.wishFor(p, m, 0)
		}
	}
	return moved
}

const (
	putHead = 8 + 4
	gotHead = 4
)

func (c *Carrier) leavePiece(p *peer, s *stream) bool {
	n := min(len(s.data)-s.done, c.MaxData()-putHead)
	le := binary.LittleEndian
	b, what := c.scratch[:0], put
	if s.move != nil {
		b = le.AppendUint64(b, s.addr+uint64(s.done))
		b = le.AppendUint32(b, s.key)
	} else {
		what = got
		b = le.AppendUint32(b, s.wish)
	}
	b = append(b, s.data[s.done:s.done+n]...)
	c.scratch = b
	if !c.leave(p, what, nil, b) {
		return false
	}
	c.stats.Pieces++
	s.done += n
	return true
}

// piece takes a packet with data, or a wish for some.
func (c *Carrier) piece(p *peer, what kind, b []byte) error {
	le := binary.LittleEndian
	switch {
	case what == put && len(b) >= putHead:
		data := b[putHead:]
		to, err := c.within(le.Uint64(b), le.Uint32(b[8:]), len(data))
		if err != nil {
			return err
		}
		c.copied(copy(to, data))
		return nil
	case what == get && len(b) == 24:
		n := le.Uint64(b[16:])
		if n > 1<<40 || len(p.streams) >= maxStreams {
			return fmt.Errorf("%w: a wish for %d bytes, with %d unfulfilled", errMalformed, n, len(p.streams))
		}
		from, err := c.within(le.Uint64(b[4:]), le.Uint32(b[12:]), int(n))
		if err != nil {
			return err
		}
		p.streams = append(p.streams, &stream{wish: le.Uint32(b), data: from})
		c.isBusy(p)
		return nil
	case what == got && len(b) >= gotHead:
		m, data := p.wishes[le.Uint32(b)], b[gotHead:]
		if m == nil || len(data) > m.left {
			return fmt.Errorf("%w: %d bytes that nobody wished for", errMalformed, len(data))
		}
		c.copied(copy(m.mem.buf[m.off+m.n-m.left:], data))
		if m.left -= len(data); m.left == 0 {
			delete(p.wishes, le.Uint32(b))
			c.endMove(m, nil)
		}
		return nil
	}
	return fmt.Errorf("%w: data packet of %d bytes", errMalformed, len(b))
}

func sortedKeys[V any](m map[uint32]V) []uint32 { return slices.Sorted(maps.Keys(m)) }
