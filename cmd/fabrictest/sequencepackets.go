package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/capture"
	"github.com/fabrictest/fabrictest/report/sequence"
)

// packetsOf returns the packets of a capture of all NICs, in the order in which they arrive. Those that do
// not are lost.
func packetsOf(name string) ([]sequence.Packet, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in, err := capture.Open(f)
	if err != nil {
		return nil, err
	}
	m := packetMatcher{hosts: map[netip.Addr]int{}, byBytes: map[string][]*sentPacket{}}
	for {
		p, err := in.Next()
		if errors.Is(err, io.EOF) {
			return m.packets(), nil
		}
		if err != nil {
			return nil, err
		}
		m.add(p)
	}
}

// packetMatcher finds the sending of each packet that arrives.
type packetMatcher struct {
	hosts   map[netip.Addr]int
	sent    []*sentPacket
	byBytes map[string][]*sentPacket // those of sent
	arrived []sequence.Packet
}

// sentPacket is a packet that was sent, and perhaps not received.
type sentPacket struct {
	sequence.Packet
	dst netip.Addr
}

// add adds a packet that a port has sent or received.
func (m *packetMatcher) add(p *capture.Packet) {
	host, at, key := hostOf(p.Interface.Name), p.Time.Sub(time.Unix(0, 0)), string(p.Data)
	x := sequence.Packet{From: host, To: host, Sent: at, Arrived: at}
	x.Text, x.Details = packetText(p)
	if p.Direction != capture.Inbound {
		m.hosts[p.IP.Src] = host
		x.Lost = true
		s := &sentPacket{x, p.IP.Dst}
		m.sent, m.byBytes[key] = append(m.sent, s), append(m.byBytes[key], s)
		return
	}
	if from, known := m.hosts[p.IP.Src]; known {
		x.From = from
	}
	if all := m.byBytes[key]; len(all) > 0 { // else it was changed on its path
		i := max(slices.IndexFunc(all, func(s *sentPacket) bool { return s.Lost }), 0) // 0: it was duplicated
		all[i].Lost = false
		x.Sent = all[i].Sent
	}
	m.arrived = append(m.arrived, x)
}

// packets returns all packets.
func (m *packetMatcher) packets() []sequence.Packet {
	all := m.arrived
	for _, s := range m.sent {
		if to, known := m.hosts[s.dst]; s.Lost && known {
			s.To = to
			all = append(all, s.Packet)
		}
	}
	slices.SortStableFunc(all, func(a, b sequence.Packet) int {
		return cmp.Or(cmp.Compare(a.Arrived, b.Arrived), cmp.Compare(a.Sent, b.Sent), cmp.Compare(a.From, b.From))
	})
	return all
}

// hostOf returns the host of a port, whose name is HOST/NIC with a number at the end of HOST.
func hostOf(port string) int {
	host, _, _ := strings.Cut(port, "/")
	n, _ := strconv.Atoi(strings.TrimLeft(host, "abcdefghijklmnopqrstuvwxyz"))
	return n
}

// packetText returns the operation of a packet with the size of its payload, and its fields.
func packetText(p *capture.Packet) (text, details string) {
	if len(p.PDUs) == 0 {
		return cmp.Or(p.Note, p.Protocol), ""
	}
	text = p.PDUs[0].Op()
	if n := p.PDUs[0].PayloadLen(); n > 0 {
		text += fmt.Sprintf(" %d", n)
	}
	return strings.TrimPrefix(text, "RC "), p.PDUs[0].Summary()
}
