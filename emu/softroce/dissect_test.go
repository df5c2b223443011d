package softroce

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
	"github.com/fabrictest/fabrictest/emu/providertest"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

// sealed returns a packet of the given opcode with its ICRC.
func sealed(op wire.Opcode) link.Datagram {
	d := link.Datagram{
		Src: netip.MustParseAddrPort("[fd00::1]:49152"), Dst: netip.MustParseAddrPort("[fd00::2]:4791"),
		IPID: link.IPIDUnknown,
	}
	p := wire.Packet{BTH: wire.BTH{Opcode: op, PKey: 0xffff, DestQP: 0x11, PSN: 7}, Payload: []byte("12345678")}
	d.Payload = p.Append(nil)
	wire.NewICRC(d.Src, d.Dst).Seal(0, d.Payload)
	return d
}

func TestDissectReadsFlowAndPSN(t *testing.T) {
	d := sealed(wire.MakeOpcode(wire.TransportRC, wire.OpSendOnly))
	flow, psn, ok := Dissector{}.Dissect(d.Payload)
	if !ok || flow != 0x11 || psn != 7 {
		t.Errorf("flow %#x, PSN %d, %v", flow, psn, ok)
	}
	for n := range wire.BTHLen + wire.ICRCLen {
		if _, _, ok := (Dissector{}).Dissect(d.Payload[:n]); ok {
			t.Errorf("%d bytes were accepted as a packet", n)
		}
	}
}

func TestSetFieldUpdatesICRC(t *testing.T) {
	rc := func(op wire.Operation) wire.Opcode { return wire.MakeOpcode(wire.TransportRC, op) }
	for name, tc := range map[string]struct {
		op    wire.Opcode
		value uint64
		read  func(p *wire.Packet) uint64
	}{
		"bth.opcode":        {rc(wire.OpSendOnly), 0x24, func(p *wire.Packet) uint64 { return uint64(p.BTH.Opcode) }},
		"bth.solicited":     {rc(wire.OpSendOnly), 1, func(p *wire.Packet) uint64 { return bit(p.BTH.Solicited) }},
		"bth.migreq":        {rc(wire.OpSendOnly), 1, func(p *wire.Packet) uint64 { return bit(p.BTH.MigReq) }},
		"bth.pad":           {rc(wire.OpSendOnly), 3, func(p *wire.Packet) uint64 { return uint64(p.BTH.PadCount) }},
		"bth.tver":          {rc(wire.OpSendOnly), 9, func(p *wire.Packet) uint64 { return uint64(p.BTH.TVer) }},
		"bth.pkey":          {rc(wire.OpSendOnly), 0x1234, func(p *wire.Packet) uint64 { return uint64(p.BTH.PKey) }},
		"bth.fecn":          {rc(wire.OpSendOnly), 1, func(p *wire.Packet) uint64 { return bit(p.BTH.FECN) }},
		"bth.becn":          {rc(wire.OpSendOnly), 1, func(p *wire.Packet) uint64 { return bit(p.BTH.BECN) }},
		"bth.destqp":        {rc(wire.OpSendOnly), 0xabcdef, func(p *wire.Packet) uint64 { return uint64(p.BTH.DestQP) }},
		"bth.ackreq":        {rc(wire.OpSendOnly), 1, func(p *wire.Packet) uint64 { return bit(p.BTH.AckReq) }},
		"bth.psn":           {rc(wire.OpSendOnly), 0xfffffe, func(p *wire.Packet) uint64 { return uint64(p.BTH.PSN) }},
		"aeth.syndrome":     {rc(wire.OpReadResponseOnly), 0x62, func(p *wire.Packet) uint64 { return uint64(p.AETH.Syndrome) }},
		"aeth.msn":          {rc(wire.OpReadResponseOnly), 0x123456, func(p *wire.Packet) uint64 { return uint64(p.AETH.MSN) }},
		"reth.va":           {rc(wire.OpWriteOnlyImm), 1 << 63, func(p *wire.Packet) uint64 { return p.RETH.VA }},
		"reth.rkey":         {rc(wire.OpWriteOnlyImm), 0xdeadbeef, func(p *wire.Packet) uint64 { return uint64(p.RETH.RKey) }},
		"reth.length":       {rc(wire.OpWriteOnlyImm), 1 << 31, func(p *wire.Packet) uint64 { return uint64(p.RETH.DMALen) }},
		"immdt":             {rc(wire.OpWriteOnlyImm), 0x0a0b0c0d, func(p *wire.Packet) uint64 { return uint64(p.Imm) }},
		"ieth.rkey":         {rc(wire.OpSendOnlyInv), 0x99aabbcc, func(p *wire.Packet) uint64 { return uint64(p.IETH.RKey) }},
		"deth.qkey":         {wire.MakeOpcode(wire.TransportUD, wire.OpSendOnlyImm), 5, func(p *wire.Packet) uint64 { return uint64(p.DETH.QKey) }},
		"deth.srcqp":        {wire.MakeOpcode(wire.TransportUD, wire.OpSendOnlyImm), 6, func(p *wire.Packet) uint64 { return uint64(p.DETH.SrcQP) }},
		"xrceth.srqn":       {wire.MakeOpcode(wire.TransportXRC, wire.OpWriteOnly), 8, func(p *wire.Packet) uint64 { return uint64(p.XRCETH.SRQN) }},
		"atomiceth.va":      {rc(wire.OpCompareSwap), 16, func(p *wire.Packet) uint64 { return p.AtomicETH.VA }},
		"atomiceth.rkey":    {rc(wire.OpCompareSwap), 17, func(p *wire.Packet) uint64 { return uint64(p.AtomicETH.RKey) }},
		"atomiceth.swapadd": {rc(wire.OpCompareSwap), 1<<64 - 1, func(p *wire.Packet) uint64 { return p.AtomicETH.SwapAdd }},
		"atomiceth.compare": {rc(wire.OpCompareSwap), 19, func(p *wire.Packet) uint64 { return p.AtomicETH.Compare }},
	} {
		d := sealed(tc.op)
		var before, after wire.Packet
		must.Do(t, before.Parse(d.Payload))
		if tc.read(&before) == tc.value {
			t.Errorf("%s: the test changes nothing", name)
		}
		if err := (Dissector{}).SetField(&d, name, tc.value); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if err := after.Parse(d.Payload); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := tc.read(&after); got != tc.value {
			t.Errorf("%s is %#x, want %#x", name, got, tc.value)
		}
		if !wire.NewICRC(d.Src, d.Dst).Check(0, d.Payload) {
			t.Errorf("%s: the ICRC is wrong", name)
		}
		// After the field is restored, the packet must be the same as before.
		must.Do(t, (Dissector{}).SetField(&d, name, tc.read(&before)))
		if string(d.Payload) != string(sealed(tc.op).Payload) {
			t.Errorf("%s: other bits changed", name)
		}
	}
	if n := len(FieldNames()); n != 25 {
		t.Errorf("%d fields, 25 are tested", n)
	}
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func TestSetFieldRejectsUnknownFields(t *testing.T) {
	send := sealed(wire.MakeOpcode(wire.TransportRC, wire.OpSendOnly))
	for _, tc := range []struct {
		d     link.Datagram
		field string
		value uint64
		text  string // part of the error
	}{
		{send, "bth.color", 1, "no field"},
		{send, "bth.psn", 1 << 24, "does not fit"},
		{send, "reth.va", 1, "no such header"},
		{sealed(0x18), "aeth.msn", 1, "no such header"},
		{link.Datagram{Payload: make([]byte, 12)}, "bth.psn", 1, wire.ErrShort.Error()},
	} {
		err := (Dissector{}).SetField(&tc.d, tc.field, tc.value)
		if err == nil || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s = %d: %v, want %q", tc.field, tc.value, err, tc.text)
		}
	}
	cut := sealed(wire.MakeOpcode(wire.TransportRC, wire.OpCompareSwap))
	cut.Payload = cut.Payload[:20]
	must.Fail(t, "a truncated header", (Dissector{}).SetField(&cut, "atomiceth.compare", 1), wire.ErrShort)
}

// captureEcho runs the echo programs on a lossy cable and captures one side.
func captureEcho(t *testing.T, seed uint64, v6 bool, file *bytes.Buffer) []string {
	t.Helper()
	addrs := [2]netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.2")}
	if v6 {
		addrs = [2]netip.Addr{addrA, addrB}
	}
	w, ports := providertest.Cable{
		Seed: seed, Addrs: addrs, Up: impair.Config{Specs: []impair.Spec{{LossPPM: 20_000}}},
		Link: sim.LinkConfig{RateBps: 10e9, Latency: time.Microsecond},
	}.Open(t)
	var lines []string
	c := pcaplink.NewCapture(file, pcaplink.Options{})
	sent := func(d *link.Datagram) { // the fields that tshark prints
		var p wire.Packet
		must.Do(t, p.Parse(d.Payload))
		lines = append(lines, fmt.Sprintf("%s %s %d %d %d %d", d.Src.Addr(), d.Dst.Addr(), d.Src.Port(), uint8(p.BTH.Opcode), p.BTH.DestQP, p.BTH.PSN))
	}
	a := openOn(t, w, ports[0], providertest.Tap{PacketLink: c.Wrap("a", ports[0]), Sent: sent}, Config{Name: "a"})
	b := openOn(t, w, ports[1], ports[1], Config{Name: "b"})
	providertest.Echo{Client: a, Server: b, To: addrs[1], Messages: 20}.InWorld(t, w)
	must.Do(t, w.RunPrograms())
	must.Do(t, c.Close())
	return lines
}

func TestSameSeedGivesSameCapture(t *testing.T) {
	const recorded = "2ed1b385eea319151a1abc54501a7ba4d0cf9e57c2c30faaa108cda396dc95af"
	providertest.ExpectSameCapture(t, recorded, func(seed uint64, file *bytes.Buffer) { captureEcho(t, seed, true, file) })
}

func TestTsharkDecodesCaptures(t *testing.T) {
	for ip, v6 := range map[string]bool{"ip": false, "ipv6": true} {
		var file bytes.Buffer
		lines := captureEcho(t, 3, v6, &file)
		// The tap has recorded only packets that side a sent.
		got := providertest.Tshark(t, file.Bytes(), "-Y", fmt.Sprintf("%s.src == %s", ip, strings.Fields(lines[0])[0]),
			"-T", "fields", "-E", "separator= ", "-e", ip+".src", "-e", ip+".dst", "-e", "udp.srcport",
			"-e", "infiniband.bth.opcode", "-e", "infiniband.bth.destqp", "-e", "infiniband.bth.psn")
		for i := range got {
			got[i] = decimal(t, got[i])
		}
		if !slices.Equal(got, lines) || len(lines) < 40 {
			t.Errorf("tshark decodes\n%s\nsent were\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
		}
	}
}

// decimal converts the hexadecimal numbers of a line to decimal.
func decimal(t *testing.T, line string) string {
	t.Helper()
	fields := strings.Fields(line)
	for i, f := range fields {
		if strings.HasPrefix(f, "0x") {
			var v uint64
			must.Get(fmt.Sscanf(f, "%v", &v))(t)
			fields[i] = fmt.Sprint(v)
		}
	}
	return strings.Join(fields, " ")
}

// A NIC model learns from packets which data was read from memory, and what memory they are for.
func TestDissectorTellsMemoryAccesses(t *testing.T) {
	for op, want := range map[wire.Operation]struct{ read, addr, receive bool }{
		wire.OpSendOnly: {receive: true}, wire.OpWriteOnly: {addr: true}, wire.OpReadRequest: {addr: true}, wire.OpReadResponseOnly: {read: true},
	} {
		p := wire.Packet{BTH: wire.BTH{Opcode: wire.MakeOpcode(wire.TransportRC, op)}, RETH: wire.RETH{VA: 0x12345678}}
		b := p.Append(nil)
		addr, ok := Dissector{}.RemoteAddr(b)
		if (Dissector{}).IsReadResponse(b) != want.read || ok != want.addr || ok && addr != 0x12345678 || (Dissector{}).ConsumesReceive(b) != want.receive {
			t.Errorf("%v: a response %v, address %#x, %v", op, Dissector{}.IsReadResponse(b), addr, ok)
		}
		if _, ok := (Dissector{}).RemoteAddr(b[:wire.BTHLen]); ok {
			t.Errorf("%v: an address without a RETH", op)
		}
	}
}
