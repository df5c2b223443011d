package interop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// cProgram acts as the C program: it sends from the buffer that it receives into and checks
// nothing. rdma_client and rdma_server send zeros; rping checks as we do.
type cProgram struct{ CMProgram }

func (p cProgram) Run(ctx context.Context, dev verbs.Context) (Result, error) {
	if err := p.validate(); err != nil {
		return Result{}, err
	}
	bufs := make([][]byte, p.Connections)
	for i := range bufs {
		bufs[i] = make([]byte, p.Size)
		if p.Tool == UCMatose {
			constant(fillByte).fill(bufs[i])
		}
	}
	return p.run(ctx, dev, contents{
		compose: func(conn, _ int, b []byte) { copy(b, bufs[conn]) },
		inspect: func(conn, _ int, b []byte) error {
			if p.Tool != RDMA {
				copy(bufs[conn], b)
			}
			return nil
		},
	})
}

// delayedClient is a client that starts when its server listens.
type delayedClient struct {
	ready chan struct{}
	runner
}

func (a delayedClient) Run(ctx context.Context, dev verbs.Context) (Result, error) {
	<-a.ready
	return a.runner.Run(ctx, dev)
}

// cmTest returns a test of p at here with the C program at there.
func cmTest(p CMProgram, here, there netip.Addr) programTest {
	ready := make(chan struct{})
	listening := func() { close(ready) }
	p.Local = here
	peer := p
	peer.Local = there
	if p.Role == Client {
		p.Addr = netip.AddrPortFrom(there, UCMatosePort)
		peer.Role, peer.Addr, peer.Ready = Server, p.Addr, listening
		return programTest{newFabric(), here, there, delayedClient{ready, p}, cProgram{peer}}
	}
	p.Addr, p.Ready = netip.AddrPortFrom(here, UCMatosePort), listening
	peer.Role, peer.Addr = Client, p.Addr
	return programTest{newFabric(), here, there, p, delayedClient{ready, cProgram{peer}}}
}

func TestCMPrograms(t *testing.T) {
	for _, p := range []CMProgram{
		{Tool: RPing, Size: 64, Count: 70},
		{Tool: RPing, Size: MaxPingSize, Count: 3, Events: true},
		{Tool: RPing, Size: 1025, Count: 5, Connections: 3},
		{Tool: UDAddy, Size: 100, Count: 5},
		{Tool: UDAddy, Size: 100, Count: 5, Events: true},
		{Tool: UCMatose, Size: 16, Count: 5},
		{Tool: UCMatose, Size: 65536, Count: 3, Events: true},
		{Tool: UCMatose, Size: 100, Count: 5, Connections: 3},
		{Tool: RDMA},
		{Tool: RDMA, Events: true},
	} {
		for _, p.Role = range []Role{Client, Server} {
			for _, test := range []programTest{cmTest(p, here4, there4), cmTest(p, here6, there6)} {
				if ours, peers := test.run(t, 30*time.Second); ours != nil || peers != nil {
					t.Errorf("%s %s of %d at %v: ours: %v; the peer's: %v", p.Tool, p.Role, p.Size, test.here, ours, peers)
				}
			}
		}
	}
}

// A flipped bit in either direction is detected.
func TestCMProgramsDetectFlippedBit(t *testing.T) {
	ucmatose := CMProgram{Tool: UCMatose, Size: 100, Count: 5}
	udaddy := CMProgram{Tool: UDAddy, Size: 100, Count: 5}
	rping := CMProgram{Tool: RPing, Size: 1025, Count: 5}
	for _, test := range []struct {
		program   CMProgram
		role      Role
		to        netip.Addr
		size      int // of the corrupted message, if not 0
		message   int // its number, or 0 for all
		byte, bit int
		want      string
	}{
		{ucmatose, Server, there6, 0, 5, 99, 0, "byte 99 of 100"}, // the last, which the client sends back
		{ucmatose, Server, here6, 0, 2, 99, 0, "byte 99 of 100"},
		{ucmatose, Client, here6, 0, 3, 99, 0, "byte 99 of 100"},
		{CMProgram{Tool: RDMA}, Client, here6, 0, 0, 15, 7, "byte 15 of 16 is 0x80"},
		{CMProgram{Tool: RDMA}, Server, here6, 0, 0, 15, 7, "byte 15 of 16 is 0x80"},
		// The reply has the header of our datagram in front of the data.
		{udaddy, Client, there6, 0, 0, 59, 0, "byte 59 of 60"},
		{udaddy, Client, here6, 0, 0, 59, 0, "byte 19 of 60"},
		// The fake device passes the payload of a read in this direction too: the sixth is the
		// third write.
		{rping, Client, here6, 1025, 6, 31, 0, "ping 2: ping 2: byte 31 of 1025"},
		{rping, Server, here6, BufferInfoLen, 0, 15, 0, "client offers"}, // the size in the advertisement
	} {
		test.program.Role = test.role
		run := cmTest(test.program, here6, there6)
		messages := 0
		run.fabric.corrupt = func(dst netip.Addr, payload []byte) {
			if dst == test.to && (test.size == 0 || len(payload) == test.size) {
				if messages++; test.message == 0 || messages == test.message {
					payload[test.byte] ^= 1 << test.bit
				}
			}
		}
		if ours, _ := run.run(t, 30*time.Second); !strings.Contains(fmt.Sprint(ours), test.want) {
			t.Errorf("%+v: got %v", test, ours)
		}
	}
}

// An excess message consumes the receive that is posted for it.
func TestMessageConnDetectsExcessMessage(t *testing.T) {
	f := newFabric()
	ready := make(chan struct{})
	addr := netip.AddrPortFrom(there4, RDMAPort)
	server := &messageRun{dev: f.device(there4), CMProgram: CMProgram{Tool: RDMA, Role: Server, Addr: addr, Ready: func() { close(ready) }}}
	server.contents.compose = func(int, int, []byte) {}
	server.inspect = func(int, int, []byte) error {
		c := server.conns[0]
		// Both arrive before the client polls.
		wr := verbs.SendWR{WRID: 99, Opcode: verbs.OpSend, Inline: make([]byte, RDMASize)}
		_, err := c.qp.PostSend([]verbs.SendWR{wr, wr})
		return err
	}
	served := make(chan error, 1)
	go func() {
		_ = server.validate()
		server.cm, _ = server.dev.CM()
		_, err := server.run(t.Context())
		served <- err
	}()
	<-ready
	_, err := CMProgram{Tool: RDMA, Role: Client, Addr: addr}.Run(t.Context(), f.device(here4))
	if err == nil || !strings.Contains(err.Error(), "completion") {
		t.Errorf("two messages instead of one: %v; the server: %v", err, <-served)
	}
}

func TestCMProgramTimesOutWithoutPeer(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, errTooLong)
	defer cancel()
	dev := newFabric().device(here4)
	if _, err := (CMProgram{Tool: RDMA, Role: Server, Addr: netip.AddrPortFrom(here4, 1)}).Run(ctx, dev); err == nil || !strings.Contains(err.Error(), "no client connected") {
		t.Errorf("server without a client: %v", err)
	}
	if _, err := (CMProgram{Tool: RDMA, Role: Client, Addr: netip.AddrPortFrom(there4, 1)}).Run(ctx, dev); err == nil {
		t.Error("client without a server ran")
	}
	if dev.open != 0 {
		t.Errorf("%d objects are open", dev.open)
	}
}

func TestCMProgramRejectsBadArguments(t *testing.T) {
	for _, p := range []CMProgram{
		{Tool: RPing, Size: 8, Count: 1},
		{Tool: RPing, Size: 65536, Count: 1},
		{Tool: RPing, Size: 64},
		{Tool: UDAddy, Size: verbs.GRHLen, Count: 1},
		{Tool: UDAddy, Size: 100},
		{Tool: UCMatose, Size: 0, Count: 1},
		{Tool: UCMatose, Size: 1},
		{Tool: RC, Size: 1, Count: 1},
		{Tool: RDMA, Role: "both"},
	} {
		if p.Role == "" {
			p.Role = Client
		}
		if _, err := p.Run(t.Context(), newFabric().device(here6)); err == nil {
			t.Errorf("%+v ran", p)
		}
	}
}

var (
	bufferInfoGolden = []byte{0, 0, 0x55, 0x66, 0x77, 0x88, 0x99, 0xa0, 0, 0, 0x12, 0x34, 0, 0, 0, 0x40}
	bufferInfoValue  = BufferInfo{Addr: 0x5566778899a0, RKey: 0x1234, Size: 64}
)

func TestBufferInfoGolden(t *testing.T) {
	if got := bufferInfoValue.Append(nil); !bytes.Equal(got, bufferInfoGolden) {
		t.Errorf("Append = %x, want %x", got, bufferInfoGolden)
	}
	var m BufferInfo
	if err := m.Parse(bufferInfoGolden); err != nil || m != bufferInfoValue {
		t.Errorf("Parse = %+v, %v; want %+v", m, err, bufferInfoValue)
	}
}

func TestBufferInfoParseRejectsEveryOtherLength(t *testing.T) {
	for n := range 2 * BufferInfoLen {
		var m BufferInfo
		if err := m.Parse(make([]byte, n)); (err == nil) != (n == BufferInfoLen) || err != nil && !errors.Is(err, ErrBufferInfo) {
			t.Errorf("Parse(%d bytes) = %v", n, err)
		}
	}
}

// The first two lines that `rping -c -v -S 96` prints, and the wrap at its 59th.
func TestRPingText(t *testing.T) {
	for n, want := range map[int]string{
		0:  "rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWX\x00",
		1:  "rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXY\x00",
		58: "rdma-ping-58: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVW\x00",
	} {
		got := make([]byte, len(want))
		RPingText(got, n)
		if string(got) != want {
			t.Errorf("ping %d:\n got %q\nwant %q", n, got, want)
		}
	}
}

func TestCheckPingErrorNamesByte(t *testing.T) {
	b := make([]byte, 1025)
	RPingText(b, 3)
	must.Do(t, checkPing(b, 3))
	b[1000] ^= 1
	if err := checkPing(b, 3); err == nil || !strings.Contains(err.Error(), "byte 1000") {
		t.Errorf("checkPing with byte 1000 corrupted = %v", err)
	}
}
