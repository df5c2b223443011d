package fuzz_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/defects"
	"github.com/fabrictest/fabrictest/emu/dgiwarp"
	"github.com/fabrictest/fabrictest/emu/dgiwarp/rd"
	dgwire "github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// maxEvents limits the events of an execution. It is far above what a program can cause in a device
// that does a bounded amount of work for each packet.
const maxEvents = 1 << 20

// maxTime ends a world whose events do not end.
const maxTime = mono.Time(100 * time.Hour)

func newWorld() *sim.World {
	return sim.New(sim.Config{Seed: 1, MaxEvents: maxEvents, MaxTime: maxTime})
}

// addrs are the addresses of two devices, over either IP version.
func addrs(ipv4 bool) [2]netip.Addr {
	if ipv4 {
		return [2]netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}
	}
	return [2]netip.Addr{netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")}
}

// ports are the two ends of a cable.
func ports(t testing.TB, w *sim.World, at [2]netip.Addr) [2]*sim.Port {
	t.Helper()
	cfg := func(i int) sim.PortConfig {
		return sim.PortConfig{Name: fmt.Sprint("host", i), Addrs: at[i : i+1], Link: sim.LinkConfig{Latency: time.Microsecond, MTU: 4200}}
	}
	a, b, err := sim.NewPair(w, sim.NetConfig{}, cfg(0), cfg(1))
	if err != nil {
		t.Fatal(err)
	}
	return [2]*sim.Port{a, b}
}

// pair is two devices with a path between them.
type pair struct {
	*sim.World
	*path
	addrs [2]netip.Addr
	devs  [2]verbs.Context
}

// rocePair opens two soft-RoCE devices.
func rocePair(t testing.TB, prog *program, ipv4 bool) *pair {
	t.Helper()
	w := newWorld()
	p := &pair{World: w, addrs: addrs(ipv4), path: &path{world: w, prog: prog, seal: sealRoCE, aim: aimRoCE, ignored: isMAD}}
	for i, port := range ports(t, w, p.addrs) {
		cfg := softroce.Config{Name: port.Name()}
		defect(t, &cfg.NIC.Policy, defects.SetSoftRoCE)
		d := must.Get(softroce.InWorld(w, port, p.gate(i, port), cfg))(t)
		p.devs[i] = d
	}
	return p
}

// isMAD reports whether a packet is for QP 1, of a connection manager. An attacker can make a CM
// wait for hours (MRA).
func isMAD(payload []byte) bool {
	return len(payload) >= wire.BTHLen && binary.BigEndian.Uint32(payload[4:])&0xffffff == 1
}

// sealRoCE sets the correct ICRC.
func sealRoCE(d *link.Datagram) []byte {
	if len(d.Payload) >= wire.BTHLen+wire.ICRCLen {
		wire.NewICRC(d.Src, d.Dst).Seal(uint16(d.IPID), d.Payload)
	}
	return d.Payload
}

// aimRoCE changes the key and address of a WRITE, READ, atomic or FLUSH.
func aimRoCE(d *link.Datagram, key uint32, at uint64) {
	var fields softroce.Dissector
	for _, header := range []string{"reth", "atomiceth"} {
		if fields.SetField(d, header+".rkey", uint64(key)) == nil {
			_ = fields.SetField(d, header+".va", at) // the header exists
		}
	}
}

// longTiming returns timing with which RD never gives up on its peer during a test.
func longTiming() rd.Timing {
	t := rd.DefaultTiming()
	t.GiveUp = 5 * time.Minute
	t.Idle = t.ReuseWithin + t.GiveUp
	return t
}

// datagramPair opens two datagram-iWARP devices.
func datagramPair(t testing.TB, prog *program, ipv4 bool, opt dgiwarp.QPOptions, timing rd.Timing) *pair {
	t.Helper()
	w := newWorld()
	p := &pair{World: w, addrs: addrs(ipv4), path: &path{world: w, prog: prog, seal: sealDatagram, aim: aimDatagram}}
	for i, port := range ports(t, w, p.addrs) {
		cfg := dgiwarp.Config{Name: port.Name(), QP: opt}
		cfg.NIC.Timing = timing
		defect(t, &cfg.NIC.Policy, defects.Shared.Set)
		d := must.Get(dgiwarp.InWorld(w, port, p.gate(i, port), cfg))(t)
		p.devs[i] = d
	}
	return p
}

// sealDatagram sets the correct CRC.
func sealDatagram(d *link.Datagram) []byte {
	if len(d.Payload) < dgwire.CRCLen {
		return d.Payload
	}
	return dgwire.AppendCRC(d.Payload[:len(d.Payload)-dgwire.CRCLen], 0)
}

// aimDatagram changes the STag and offset of a tagged segment, or the source of a Read Request.
func aimDatagram(d *link.Datagram, key uint32, at uint64) {
	var k dgwire.Packet
	if k.Parse(d.Payload) != nil || len(k.ULPDU) < 2 {
		return
	}
	const untagged = 18 // length of a DDP header before a Read Request
	stag := 2
	if k.ULPDU[0]&0x80 == 0 {
		stag = untagged + 16
	}
	// k.ULPDU is a part of d.Payload.
	if len(k.ULPDU) >= stag+12 {
		binary.BigEndian.PutUint32(k.ULPDU[stag:], key)
		binary.BigEndian.PutUint64(k.ULPDU[stag+4:], at)
	}
}
