package kernel

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/fabrictest/fabrictest/internal/must"
)

func small(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	a := NewArchive(&b)
	a.AddDir("/etc/deep")
	a.AddText("/etc/motd", 0o644, "hello")
	a.AddLink("bin", "usr/bin")
	must.Do(t, a.Close())
	return b.Bytes()
}

// The format is six digits, thirteen numbers of eight, a name with its NUL, and
// octets, each filled up to a multiple of four.
func TestArchiveBytes(t *testing.T) {
	entry := func(inode, mode, links, size, nameSize string) string {
		zero := "00000000"
		return "070701" + inode + mode + zero + zero + links + zero + size + zero + zero + zero + zero + nameSize + zero
	}
	want := entry("00000001", "000041ed", "00000002", "00000000", "00000004") + "etc\x00\x00\x00" +
		entry("00000002", "000041ed", "00000002", "00000000", "00000009") + "etc/deep\x00\x00" +
		entry("00000003", "000081a4", "00000001", "00000005", "00000009") + "etc/motd\x00\x00" + "hello\x00\x00\x00" +
		entry("00000004", "0000a1ff", "00000001", "00000007", "00000004") + "bin\x00\x00\x00" + "usr/bin\x00" +
		entry("00000000", "00000000", "00000001", "00000000", "0000000b") + "TRAILER!!!\x00\x00\x00\x00"
	got := small(t)
	if len(got)%512 != 0 {
		t.Errorf("%d octets are no whole blocks", len(got))
	}
	if trimmed := strings.TrimRight(string(got), "\x00"); trimmed != strings.TrimRight(want, "\x00") {
		t.Errorf("got  %q\nwant %q", trimmed, want)
	}
	if !bytes.Equal(got, small(t)) {
		t.Error("the same files made another archive")
	}
}

func TestArchiveIsReadByCPIO(t *testing.T) {
	cpio, err := exec.LookPath("cpio")
	if err != nil {
		t.Skip("no cpio to ask: ", err)
	}
	cmd := exec.Command(cpio, "-tv", "--quiet")
	cmd.Stdin = bytes.NewReader(small(t))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"drwxr-xr-x   2 root", " etc/deep\n", "-rw-r--r--   1 root     root            5 ", " etc/motd\n", " bin -> usr/bin\n"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("cpio says\n%s\nwant %q", out, want)
		}
	}
	extract := exec.Command(cpio, "-id", "--quiet")
	extract.Dir, extract.Stdin = t.TempDir(), bytes.NewReader(small(t))
	if out, err := extract.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestArchiveRejectsInvalidEntries(t *testing.T) {
	for name, write := range map[string]func(*Archive){
		"is written twice":            func(a *Archive) { a.AddText("x", 0o644, ""); a.AddText("/x", 0o644, "") },
		"is written before its folde": func(a *Archive) { a.AddText("no/x", 0o644, "") },
		"after 3 of 5 bytes":          func(a *Archive) { a.AddFile("x", 0o644, 5, strings.NewReader("abc")) },
		"bad disk":                    func(a *Archive) { a.AddFile("x", 0o644, 5, iotest.ErrReader(errors.New("bad disk"))) },
		"more than the format allows": func(a *Archive) { a.AddFile("x", 0o644, 1<<32, nil) },
	} {
		a := NewArchive(&bytes.Buffer{})
		write(a)
		if err := a.Close(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %q", err, name)
		}
	}
}

func TestArchiveReportsAFullDisk(t *testing.T) {
	a := NewArchive(fullDisk{})
	a.AddFile("x", 0o644, 4<<20, bytes.NewReader(make([]byte, 4<<20)))
	if err := a.Close(); !errors.Is(err, errFull) {
		t.Errorf("got %v", err)
	}
}

var errFull = errors.New("the disk is full")

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }
