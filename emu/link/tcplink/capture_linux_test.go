package tcplink

import (
	"bytes"
	"io"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/link/linktest"
	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
	"github.com/fabrictest/fabrictest/internal/must"
)

func TestCapturedStreamNet(t *testing.T) {
	linktest.TestStreamNet(t, func(t *testing.T) linktest.StreamBench {
		a, b := openNet(t, Config{}), openNet(t, Config{})
		c := pcaplink.NewCapture(io.Discard, pcaplink.Options{})
		return linktest.StreamBench{
			A: c.WrapStreams("a", a), B: c.WrapStreams("b", b),
			AddrA: families[0].addr, AddrB: families[0].addr, Settle: settle(a, b),
		}
	})
}

func TestCapturedNetIsStreamWaiter(t *testing.T) {
	var file bytes.Buffer
	c := pcaplink.NewCapture(&file, pcaplink.Options{})
	w, ok := c.WrapStreams("a", openNet(t, Config{})).(link.StreamWaiter)
	if !ok {
		t.Fatal("a wrapped net is no StreamWaiter any more")
	}
	w.Wake()
	must.Do(t, w.WaitReady(-1))
}
