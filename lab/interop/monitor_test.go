package interop

import (
	"encoding/binary"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

var (
	here  = netip.MustParseAddrPort("10.77.0.1:40000")
	there = netip.MustParseAddrPort("10.77.0.11:7174")
)

// captured returns the frames of a capture, in order.
func captured(t *testing.T, file string) (frames [][]byte) {
	t.Helper()
	for _, c := range testutil.ReadCaptureFile(t, file) {
		frames = append(frames, c.Data)
	}
	return frames
}

// port finds the port that the first connection of a capture goes to.
func port(frames [][]byte) uint16 {
	for _, f := range frames {
		if s, ok := parseFrame(f); ok && s.flags&(tcpSYN|tcpACK) == tcpSYN {
			return s.dst.Port()
		}
	}
	return 0
}

// The captures of the codec tests show two siw devices.
func TestMonitorReadsCapturesOfSIW(t *testing.T) {
	files, err := filepath.Glob("../../emu/iwarp/wire/testdata/siw*.pcap")
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	var all TapReport
	for _, file := range files {
		frames := captured(t, file)
		w := NewMonitor(port(frames))
		reversed := NewMonitor(port(frames))
		for i, f := range frames {
			w.Frame(time.Unix(int64(i), 0), f)
		}
		// The order of the data does not change the result.
		data := slices.Clone(frames)
		slices.SortStableFunc(data, func(a, b []byte) int { return reverseRank(b) - reverseRank(a) })
		for _, f := range data {
			reversed.Frame(time.Time{}, f)
		}
		r := w.Report(netip.MustParseAddr("10.77.0.11"))
		name := filepath.Base(file)
		withCRC := 0
		if strings.HasPrefix(name, "siwcrc") {
			withCRC = r.Connections
		}
		if r.Connections == 0 || r.WithCRC != withCRC || r.Unread != 0 {
			t.Errorf("%s: %+v", name, r)
		}
		if r.Ours.FPDUs == 0 || r.Theirs.FPDUs == 0 || r.Ours.BadCRCs+r.Theirs.BadCRCs != 0 || r.Ours.Mangled+r.Theirs.Mangled != 0 {
			t.Errorf("%s: %+v", name, r)
		}
		if other := reversed.Report(netip.MustParseAddr("10.77.0.11")); other != r {
			t.Errorf("%s: reversed %+v, want %+v", name, other, r)
		}
		all.Ours.add(r.Ours)
		all.Theirs.add(r.Theirs)
	}
	if got := all.Ours.DirtyPads + all.Theirs.DirtyPads; got != 12 {
		t.Errorf("%d frames with a dirty pad, want 12 as in the captures' README", got)
	}
}

// reverseRank sorts SYNs first and data in reverse order.
func reverseRank(frame []byte) int {
	s, ok := parseFrame(frame)
	switch {
	case !ok:
		return 0
	case s.flags&tcpSYN != 0:
		return 1 << 30
	default:
		return int(s.seq & (1<<29 - 1))
	}
}

// frameOf is a frame with a TCP segment over IPv4.
func frameOf(src, dst netip.AddrPort, seq, ack uint32, flags uint8, payload []byte) []byte {
	tcp := make([]byte, tcpLen, tcpLen+len(payload))
	binary.BigEndian.PutUint16(tcp, src.Port())
	binary.BigEndian.PutUint16(tcp[2:], dst.Port())
	binary.BigEndian.PutUint32(tcp[4:], seq)
	binary.BigEndian.PutUint32(tcp[8:], ack)
	tcp[12], tcp[13] = tcpLen/4<<4, flags
	ip := packet.IP{Src: src.Addr(), Dst: dst.Addr(), Protocol: new(uint8(packet.ProtocolTCP))}
	return packet.Ethernet{Type: packet.EtherTypeIPv4}.Append(nil, ip.Append(nil, append(tcp, payload...)))
}

// Flags of a start-up frame.
const (
	flagCRC      = 0x40
	flagRejected = 0x20
)

func startFrame(key string, flags byte) []byte {
	return append([]byte(key), flags, 1, 0, 0)
}

// monitoredConn is a scripted connection that a Monitor sees.
type monitoredConn struct {
	w    *Monitor
	now  time.Time
	seqs [2]uint32
}

func newMonitoredConn() *monitoredConn {
	k := &monitoredConn{w: NewMonitor(there.Port()), now: time.Unix(1, 0), seqs: [2]uint32{0xffffffe0, 7}} // the initiator's wraps
	k.send(initiator, tcpSYN, nil)
	k.send(responder, tcpSYN|tcpACK, nil)
	return k
}

func (k *monitoredConn) send(from int, flags uint8, b []byte) {
	src, dst := here, there
	if from == responder {
		src, dst = there, here
	}
	k.w.Frame(k.now, frameOf(src, dst, k.seqs[from], k.seqs[1-from], flags|tcpACK&^(tcpSYN&flags<<3), b))
	k.seqs[from] += uint32(len(b))
	if flags&tcpSYN != 0 {
		k.seqs[from]++
	}
}

func (k *monitoredConn) ack(from int) { k.send(from, tcpACK, nil) }

var (
	// A zero-length RDMA Write, and a Send of one octet, whose pad is dirty.
	rtr   = append([]byte{0, 14, 0xc1, 0x40}, make([]byte, 12+4)...)
	dirty = append(append([]byte{0, 19, 0x41, 0x43}, make([]byte, 16+1)...), 1, 2, 3, 0, 0, 0, 0)
)

func TestMonitorDetectsStalledFirstFrame(t *testing.T) {
	k := newMonitoredConn()
	k.send(initiator, tcpACK, startFrame(iwarp.KeyRequest, 0))
	k.send(responder, tcpACK, startFrame(iwarp.KeyReply, 0))
	check := func(what string, want bool) {
		t.Helper()
		if got := k.w.Stalled(k.now, time.Second); got != want {
			t.Errorf("%s: stalled = %v", what, got)
		}
	}
	k.now = k.now.Add(time.Minute)
	check("nothing sent yet", false)
	k.send(initiator, tcpACK, rtr)
	k.now = k.now.Add(time.Minute)
	check("not acknowledged", false)
	k.ack(responder)
	check("just acknowledged", false)
	k.now = k.now.Add(2 * time.Second)
	check("acknowledged, no response", true)
	k.send(responder, tcpACK, dirty)
	k.now = k.now.Add(time.Minute)
	check("response", false)
	want := TapReport{Connections: 1, Ours: Side{FPDUs: 1}, Theirs: Side{FPDUs: 1, DirtyPads: 1}}
	if got := k.w.Report(here.Addr()); got != want {
		t.Errorf("report %+v, want %+v", got, want)
	}
}

func TestMonitorCountsBadCRCAndRejection(t *testing.T) {
	k := newMonitoredConn()
	k.send(initiator, tcpACK, startFrame(iwarp.KeyRequest, 0))
	k.send(responder, tcpACK, startFrame(iwarp.KeyReply, flagCRC))
	k.send(initiator, tcpACK, rtr) // its CRC is zero
	if r := k.w.Report(here.Addr()); r.WithCRC != 1 || r.Ours.BadCRCs != 1 {
		t.Errorf("a CRC of zero: %+v", r)
	}
	k = newMonitoredConn()
	k.send(initiator, tcpACK, startFrame(iwarp.KeyRequest, 0))
	k.send(responder, tcpACK, startFrame(iwarp.KeyReply, flagRejected))
	if r := k.w.Report(here.Addr()); r.Connections != 0 {
		t.Errorf("a rejection: %+v", r)
	}
}

func TestUnreadableConnectionsAreCounted(t *testing.T) {
	for what, run := range map[string]func(k *monitoredConn){
		"another protocol": func(k *monitoredConn) { k.send(initiator, tcpACK, []byte("GET / HTTP/1.1")) },
		"a gap": func(k *monitoredConn) {
			k.send(initiator, tcpACK, startFrame(iwarp.KeyRequest, 0))
			k.seqs[initiator] += 20
			k.send(initiator, tcpACK, rtr)
		},
		"too many octets after a gap": func(k *monitoredConn) {
			k.seqs[initiator]++
			for range maxEarlyLen/60000 + 1 {
				k.send(initiator, tcpACK, make([]byte, 60000))
			}
		},
	} {
		k := newMonitoredConn()
		run(k)
		if r := k.w.Report(here.Addr()); r.Unread != 1 {
			t.Errorf("%s: %+v", what, r)
		}
	}
}

func TestMangledTerminateIsCounted(t *testing.T) {
	ulpdu := append([]byte{0x41, 0x47}, make([]byte, 20)...)
	ulpdu[18], ulpdu[19] = 0x02, 0x02
	k := newMonitoredConn()
	k.send(initiator, tcpACK, startFrame(iwarp.KeyRequest, 0))
	k.send(responder, tcpACK, startFrame(iwarp.KeyReply, 0))
	k.send(responder, tcpACK, append(append([]byte{0, 22}, ulpdu...), 0, 0, 0, 0))
	if r := k.w.Report(here.Addr()); r.Theirs.Terminates != 1 || r.Theirs.Mangled != 1 {
		t.Errorf("a Terminate of siw: %+v", r)
	}
}

// No frame makes the monitor panic.
func FuzzMonitor(f *testing.F) {
	f.Add(frameOf(here, there, 1, 1, tcpSYN, nil))
	f.Add(frameOf(here, there, 1, 1, tcpACK, startFrame(iwarp.KeyRequest, 0)))
	f.Add(frameOf(there, here, 1, 1, tcpACK, dirty))
	f.Fuzz(func(t *testing.T, frame []byte) {
		k := newMonitoredConn()
		k.w.Frame(k.now, frame)
		k.send(initiator, tcpACK, startFrame(iwarp.KeyRequest, 0))
		k.w.Frame(k.now, frame)
		k.send(responder, tcpACK, startFrame(iwarp.KeyReply, flagCRC))
		k.w.Frame(k.now, frame)
		if len(frame) < 60000 {
			k.send(initiator, tcpACK, frame)
		}
		_ = k.w.Report(here.Addr())
	})
}
