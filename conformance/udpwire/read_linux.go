package udpwire

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet"
)

// read takes datagrams from a socket until it is closed.
func (w *Wire) read(s *socket) {
	buf, oob := make([]byte, longestUDP), make([]byte, 512)
	var drops uint32
	for {
		var n, oobn, flags int
		var from unix.Sockaddr
		var err error
		cerr := s.conn.Read(func(fd uintptr) bool {
			n, oobn, flags, from, err = unix.Recvmsg(int(fd), buf, oob, 0)
			return !errors.Is(err, unix.EAGAIN)
		})
		switch {
		case cerr != nil:
			return // closed
		case err != nil:
			continue // of something that was sent
		}
		t, err := readControl(oob[:oobn])
		d, readErr := came(from, s.at, &t, buf[:n])
		err = cmp.Or(err, readErr)
		if flags&unix.MSG_CTRUNC != 0 {
			err = errUntold
		}
		w.deliver(d, &t, t.drops-drops, err)
		drops = t.drops
	}
}

// deliver keeps a datagram until somebody reads it.
func (w *Wire) deliver(d *datagram, t *told, drops uint32, err error) {
	a := arrival{seen: t.seen, err: err, Frame: conformance.Frame{At: t.seen.Sub(w.cfg.Epoch)}}
	if err == nil {
		a.Packet = w.whole(d)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost += uint64(drops)
	if t.seen.Before(w.since) {
		return
	}
	if len(w.arrived) >= maxUnread {
		w.lost++
		return
	}
	// Sockets are read beside each other, and may be late.
	i, _ := slices.BinarySearchFunc(w.arrived, a, func(x, y arrival) int {
		if x.seen.After(y.seen) {
			return 1
		}
		return -1
	})
	w.arrived = slices.Insert(w.arrived, i, a)
	w.wake()
}

// whole is the packet that a datagram came in, as far as that is known.
func (w *Wire) whole(d *datagram) []byte {
	p := d.packet()
	if d.dst.Addr().Is6() || w.cfg.Identify == nil {
		return p
	}
	id, df, ok := w.cfg.Identify(p)
	if !ok {
		return p
	}
	binary.BigEndian.PutUint16(p[4:], id)
	if !df {
		p[6] &^= 0x40
	}
	p[10], p[11] = 0, 0
	binary.BigEndian.PutUint16(p[10:], packet.Checksum(p[:20]))
	return p
}
