package conform_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/report/conform"
	"github.com/fabrictest/fabrictest/verbs"
)

// clock is a time that a test sets.
type clock struct {
	verbs.Proc
	now time.Duration
}

func (c *clock) Now() time.Duration { return c.now }

// wire returns the given frames.
type wire struct {
	conformance.Wire
	frames []conformance.Frame
}

func (w *wire) Send([]byte) error { return nil }

func (w *wire) Recv(time.Duration) (conformance.Frame, error) {
	f := w.frames[0]
	w.frames = w.frames[1:]
	return f, nil
}

func describe(e *conformance.Event) string { return fmt.Sprintf("%s%d bytes", e.Text, len(e.Data)) }

func udp(n int) []byte {
	b := make([]byte, 8+n)
	b[5] = byte(8 + n)
	return packet.IP{Src: netip.MustParseAddr("fd00::1"), Dst: netip.MustParseAddr("fd00::2")}.Append(nil, b)
}

// A packet may be received by a case long after its arrival: the ladder orders by arrival.
func TestLadderIsOrderedByTime(t *testing.T) {
	c, r := &clock{now: 10}, new(conformance.Record)
	w := r.RecordWire(c, &wire{frames: []conformance.Frame{{At: 5, Packet: udp(1)}}})
	must.Do(t, w.Send(udp(2)))
	must.Get(w.Recv(0))(t)
	l := conform.NewLadder(r, describe)
	if len(l.Steps) != 2 || l.Steps[0].Kind != conform.Received || l.Steps[0].At != 5 || l.Steps[1].Kind != conform.Sent || l.Beyond != 0 {
		t.Errorf("%+v", l)
	}
}

func TestLongLadderOmitsMiddle(t *testing.T) {
	c, r := &clock{}, new(conformance.Record)
	w := r.RecordWire(c, &wire{})
	for i := range 1000 {
		c.now = time.Duration(i)
		_ = w.Send(udp(1))
	}
	l := conform.NewLadder(r, describe)
	last := l.Steps[len(l.Steps)-1]
	if len(l.Steps) != 201 || l.Beyond != 800 || l.Steps[60].Kind != conform.Gap || l.Steps[60].Text != "800 more" || last.At != 999 {
		t.Errorf("%d steps, %d beyond, %+v, %+v", len(l.Steps), l.Beyond, l.Steps[60], last)
	}
}

// pipe is a stream from which the given octets are read.
type pipe struct {
	conformance.Stream
	local, remote netip.AddrPort
	reads         [][]byte
}

func (p *pipe) Local() netip.AddrPort  { return p.local }
func (p *pipe) Remote() netip.AddrPort { return p.remote }
func (p *pipe) Write([]byte) error     { return nil }
func (p *pipe) CloseWrite() error      { return nil }
func (p *pipe) Read(time.Duration) ([]byte, error) {
	if len(p.reads) == 0 {
		return nil, io.EOF
	}
	b := p.reads[0]
	p.reads = p.reads[1:]
	return b, nil
}

type dialler struct {
	conformance.Streams
	pipe *pipe
}

func (d *dialler) Dial(netip.AddrPort, time.Duration) (conformance.Stream, error) { return d.pipe, nil }

const (
	mpaRequest = "MPA ID Req Frame\x40\x01\x00\x00"
	mpaReply   = "MPA ID Rep Frame\x40\x01\x00\x00"
)

// recordStream records a start-up of MPA, a long write and the end of a stream.
func recordStream(t *testing.T, family int, deviceDials bool) *conformance.Record {
	t.Helper()
	p := &pipe{local: netip.MustParseAddrPort("[fd00::2]:40000"), remote: netip.MustParseAddrPort("[fd00::1]:4791"), reads: [][]byte{[]byte(mpaReply)}}
	if family == 4 {
		p.local, p.remote = netip.MustParseAddrPort("10.0.0.2:40000"), netip.MustParseAddrPort("10.0.0.1:4791")
	}
	c, r := &clock{now: time.Millisecond}, new(conformance.Record)
	s := must.Get(r.RecordStreams(c, &dialler{pipe: p}).Dial(p.remote, 0))(t)
	read := func() { _, _ = s.Read(0) }
	if deviceDials {
		p.reads = [][]byte{[]byte(mpaRequest)}
		read()
		_ = s.Write([]byte(mpaReply))
	} else {
		_ = s.Write([]byte(mpaRequest))
		read()
	}
	c.now += time.Millisecond
	_ = s.Write(make([]byte, 20_000))
	read() // the device's FIN
	read() // EOF can be read again
	_ = s.CloseWrite()
	return r
}

func TestStreamsAreWrittenAsTCP(t *testing.T) {
	for _, family := range []int{4, 6} {
		var b bytes.Buffer
		must.Do(t, conform.WriteCapture(&b, recordStream(t, family, false), time.Unix(1000, 0)))
		all := testutil.ReadCapture(t, &b)
		// A handshake, two frames, three segments, two FINs.
		if len(all) != 3+2+3+2 || !all[0].Out || all[1].Out || all[0].At.After(all[3].At) || !all[3].At.Equal(time.Unix(1000, 1e6)) {
			t.Fatalf("IPv%d: %d packets: %+v", family, len(all), all)
		}
	}
}

// tshark decodes the synthesised TCP segments, and reports no error.
func TestTsharkAcceptsCapture(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("no tshark on PATH: install it (apt install tshark)")
	}
	for _, c := range []struct {
		family      int
		deviceDials bool
	}{{4, false}, {6, false}, {6, true}} {
		file := filepath.Join(t.TempDir(), "x.pcapng")
		f := must.Get(os.Create(file))(t)
		must.Do(t, errors.Join(conform.WriteCapture(f, recordStream(t, c.family, c.deviceDials), time.Unix(1000, 0)), f.Close()))
		out, err := exec.Command(tshark, "-r", file, "-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE",
			"-T", "fields", "-e", "tcp.checksum.status", "-e", "_ws.col.Protocol", "-e", "tcp.analysis.flags", "-e", "ip.checksum.status", "-E", "separator=;").Output()
		if err != nil {
			t.Skipf("tshark cannot be run here: %v", err)
		}
		if strings.Count(string(out), ";MPA;") < 2 {
			t.Errorf("%+v: start-up was not recognised:\n%s", c, out)
		}
		for line := range strings.Lines(string(out)) {
			cells := strings.Split(strings.TrimSpace(line), ";")
			if cells[0] != "1" || cells[2] != "" || c.family == 4 && cells[3] != "1" {
				t.Errorf("%+v: %s", c, line)
			}
		}
	}
}

func TestNotesBecomeCommentsOfNextPacket(t *testing.T) {
	c, r := &clock{now: 7}, new(conformance.Record)
	b := &conformance.Bench{Runtime: world{c}, Record: r}
	b.Note("post %s", "a SEND")
	_ = r.RecordWire(c, &wire{}).Send(udp(3))
	var out bytes.Buffer
	must.Do(t, conform.WriteCapture(&out, r, time.Unix(0, 0)))
	all := testutil.ReadCapture(t, &out)
	if len(all) != 1 || all[0].Comment != "post a SEND" || !all[0].Out || all[0].At.UnixNano() != 7 {
		t.Errorf("%+v", all)
	}
}

type world struct{ *clock }

func (world) Go(string, func() error) conformance.Task { return nil }

// rawTCP is a TCP host whose packets are on a wire.
type rawTCP struct {
	conformance.RawTCP
	pipe *pipe
}

func (b *rawTCP) Dial(netip.AddrPort, time.Duration) (conformance.Stream, error) { return b.pipe, nil }

// A stream whose packets are in the record is shown by its packets only.
func TestRawTCPIsShownByItsPackets(t *testing.T) {
	c, r := &clock{now: 7}, new(conformance.Record)
	p := &pipe{local: netip.MustParseAddrPort("10.0.0.2:40000"), remote: netip.MustParseAddrPort("10.0.0.1:4791")}
	s := must.Get(r.RecordRawTCP(c, &rawTCP{pipe: p}).Dial(p.remote, 0))(t)
	_ = s.Write([]byte(mpaRequest))
	_ = r.RecordWire(c, &wire{}).Send(udp(3))
	if l := conform.NewLadder(r, describe); len(l.Steps) != 1 || l.Steps[0].Stream != 0 {
		t.Errorf("%+v", l)
	}
	var out bytes.Buffer
	must.Do(t, conform.WriteCapture(&out, r, time.Unix(0, 0)))
	if all := testutil.ReadCapture(t, &out); len(all) != 1 || len(all[0].Data) != len(udp(3)) {
		t.Errorf("%+v", all)
	}
}

// Checksums over IPv6 are filled in if all are 0, and the file says so. If some are
// not, the case tests checksums, and the packets are unchanged.
func TestUDPChecksumsAreFilledInIfAllAreZero(t *testing.T) {
	checksummed := udp(3)
	binary.BigEndian.PutUint16(checksummed[46:], 0x1234)
	for _, c := range []struct {
		packets [][]byte
		filled  bool
	}{{[][]byte{udp(2), udp(3)}, true}, {[][]byte{udp(2), checksummed}, false}} {
		clock, r := &clock{now: 7}, new(conformance.Record)
		for _, p := range c.packets {
			_ = r.RecordWire(clock, &wire{}).Send(p)
		}
		var out bytes.Buffer
		must.Do(t, conform.WriteCapture(&out, r, time.Unix(0, 0)))
		if reads := bytes.Contains(out.Bytes(), []byte("filled in")); reads != c.filled {
			t.Errorf("the file reports filled in checksums: %v, want %v", reads, c.filled)
		}
		all := testutil.ReadCapture(t, &out)
		if len(all) != len(c.packets) {
			t.Fatalf("%d packets", len(all))
		}
		for i, p := range all {
			if !c.filled {
				if !bytes.Equal(p.Data, c.packets[i]) {
					t.Errorf("packet %d has changed: %x", i, p.Data)
				}
				continue
			}
			pseudo := append(bytes.Clone(p.Data[8:40]), 0, 0, 0, byte(len(p.Data)-40), 0, 0, 0, packet.ProtocolUDP)
			if sum := packet.Checksum(pseudo, p.Data[40:]); sum != 0 {
				t.Errorf("packet %d: the checksum of a correct datagram is 0, not %#x", i, sum)
			}
		}
	}
}
