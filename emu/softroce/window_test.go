package softroce

import (
	"testing"

	"github.com/fabrictest/fabrictest/emu/link/udplink"
)

func TestWindowFitsSocketBuffer(t *testing.T) {
	for _, c := range []struct{ buf, mtu, want int }{
		{8 << 20, 9000, 256},
		{8 << 20, 1500, 256},
		{425_984, 9000, 51}, // what Linux grants an ordinary user
		{425_984, 1500, 141},
		{2304, 9000, 16},
	} {
		if got := windowPackets(udplink.Info{RecvBufBytes: c.buf, MTU: c.mtu}); got != c.want {
			t.Errorf("buffer of %d bytes, MTU %d: window of %d packets, want %d", c.buf, c.mtu, got, c.want)
		}
	}
	d := loopback(t, "127.71.0.9", udplink.Config{RecvBufBytes: 100_000})
	if w := d.nic.Config().WindowPackets; w >= 50 || w < minWindow {
		t.Errorf("a device with a small buffer has a window of %d packets", w)
	}
}
