package perflab

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func endpoints(addr string) (a, b RawEndpoint) {
	e := RawEndpoint{Addr: netip.AddrPortFrom(netip.MustParseAddr(addr), 0)}
	return e, e
}

func TestRawTCPStream(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "::1"} {
		a, b := endpoints(addr)
		for _, copyAndCRC := range []bool{false, true} {
			for _, n := range []int{1, 64, 100_000, 4 << 20} {
				v, err := RawTCPStream(a, b, RawStreamConfig{Bytes: n, CopyAndCRC: copyAndCRC, Duration: 5 * time.Millisecond})
				if strings.Contains(addr, ":") && isNoAddress(err) {
					t.Skip("no IPv6 here")
				}
				if err != nil || v <= 0 {
					t.Errorf("%s, %d bytes, copyAndCRC %v: %v Gb/s, %v", addr, n, copyAndCRC, v, err)
				}
			}
		}
	}
}

func isNoAddress(err error) bool {
	return err != nil && strings.Contains(err.Error(), unix.EADDRNOTAVAIL.Error())
}

func TestRawTCPPingPong(t *testing.T) {
	a, b := endpoints("127.0.0.1")
	for _, block := range []bool{false, true} {
		for _, n := range []int{1, 100_000} {
			v, err := RawTCPPingPong(a, b, RawPingPongConfig{Bytes: n, Rounds: 200, Block: block})
			if err != nil || v <= 0 {
				t.Errorf("%d bytes, blocking %v: %v µs, %v", n, block, v, err)
			}
		}
	}
}

func TestInvalidAddressFails(t *testing.T) {
	a, b := endpoints("127.0.0.1")
	b.Addr = netip.MustParseAddrPort("192.0.2.1:0")
	if _, err := RawTCPPingPong(a, b, RawPingPongConfig{Bytes: 8, Rounds: 1}); err == nil || !strings.Contains(err.Error(), "192.0.2.1") {
		t.Errorf("a socket on a foreign address: %v", err)
	}
}

func TestReceiverHandlesAnySegmentation(t *testing.T) {
	const message = chunkMax + 1000
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var stream []byte
		from := newChunker(message)
		for i := range from.memory {
			from.memory[i] = byte(rng.Uint32())
		}
		const messages = 7
		for range 2 * messages {
			b := from.next()
			stream = append(stream, b...)
			stream = binary.LittleEndian.AppendUint32(stream, crc32.Checksum(b, castagnoli))
		}
		corrupt := append([]byte(nil), stream...)
		corrupt[rng.IntN(len(corrupt))] ^= 1
		for i, s := range [][]byte{stream, corrupt} {
			r := newReceiver(socket{}, RawStreamConfig{Bytes: message, CopyAndCRC: true})
			var err error
			for len(s) > 0 && err == nil {
				n := min(len(s), 1+rng.IntN(1<<uint(1+rng.IntN(17))))
				err = r.consume(s[:n])
				s = s[n:]
			}
			switch {
			case i == 0 && (err != nil || r.received != messages*message):
				t.Fatalf("seed %d: %d of %d bytes, %v", seed, r.received, messages*message, err)
			case i == 1 && err == nil:
				t.Fatalf("seed %d: a flipped bit was not detected", seed)
			}
		}
	}
}

func TestFailedSideEndsOther(t *testing.T) {
	a, b := endpoints("127.0.0.1")
	cfg := RawPingPongConfig{Bytes: 8, Rounds: 1, Block: true}
	client, server, err := connectTCP(a, b, cfg.Block)
	if err != nil {
		t.Fatal(err)
	}
	defer client.close()
	defer server.close()
	failing := newPingPongSocket(client, cfg)
	failing.recv = func([]byte) (int, error) { return 0, errClosed }
	start := time.Now()
	_, err = runPingPong(cfg, [2]int{}, failing, newPingPongSocket(server, cfg))
	if err == nil || time.Since(start) > ioTimeout/2 {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
}
