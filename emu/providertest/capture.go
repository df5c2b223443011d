package providertest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

// ExpectSameCapture checks that captures of a simulated world follow from the seed alone.
// recorded is the SHA-256 of the capture of seed 3, made on amd64: other machines and later
// versions must agree, or the change log says that runs of the same seed differ from now
// on. It may be empty.
func ExpectSameCapture(t *testing.T, recorded string, capture func(seed uint64, file *bytes.Buffer)) {
	t.Helper()
	with := func(seed uint64, procs int) []byte {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
		var file bytes.Buffer
		capture(seed, &file)
		return file.Bytes()
	}
	one := with(3, 1)
	if !bytes.Equal(one, with(3, 1)) || !bytes.Equal(one, with(3, 4)) {
		t.Error("the same seed gave different captures")
	}
	if bytes.Equal(one, with(4, 1)) {
		t.Error("another seed gave the same capture: is anything random?")
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(one)); sum != recorded && recorded != "" {
		t.Errorf("capture of seed 3 has changed: SHA-256 %s, was %s", sum, recorded)
	}
}

// Tshark returns the lines that tshark prints for a capture.
func Tshark(t *testing.T, file []byte, args ...string) []string {
	t.Helper()
	program, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed (Debian: apt-get install tshark)")
	}
	name := filepath.Join(t.TempDir(), "f.pcapng")
	must.Do(t, os.WriteFile(name, file, 0o600))
	out := must.Get(exec.Command(program, append([]string{"-r", name}, args...)...).Output())(t)
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' })
}

// Tap is a link that shows the datagrams that were sent.
type Tap struct {
	link.PacketLink
	Sent func(d *link.Datagram)
}

// Send sends datagrams.
func (p Tap) Send(now mono.Time, ds []link.Datagram) (int, error) {
	n, err := p.PacketLink.Send(now, ds)
	for i := range n {
		p.Sent(&ds[i])
	}
	return n, err
}
