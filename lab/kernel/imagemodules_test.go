package kernel

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/fabrictest/fabrictest/internal/must"
)

// fakeModule returns a minimal ELF file with a .modinfo section.
func fakeModule(t *testing.T, fields ...string) []byte {
	t.Helper()
	info := strings.Join(fields, "\x00") + "\x00"
	names := "\x00.modinfo\x00.shstrtab\x00"
	const header = 64
	h := elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_REL), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT), Ehsize: header,
		Shoff: uint64(header + len(info) + len(names)), Shentsize: 64, Shnum: 3, Shstrndx: 2,
	}
	sections := []elf.Section64{
		{},
		{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: header, Size: uint64(len(info))},
		{Name: 10, Type: uint32(elf.SHT_STRTAB), Off: uint64(header + len(info)), Size: uint64(len(names))},
	}
	var b bytes.Buffer
	for _, part := range []any{h, []byte(info), []byte(names), sections} {
		must.Do(t, binary.Write(&b, binary.LittleEndian, part))
	}
	return b.Bytes()
}

func TestModuleDependencies(t *testing.T) {
	dir, files := t.TempDir(), map[string]string{}
	for name, fields := range map[string][]string{
		"rdma_rxe":    {"license=GPL", "alias=rdma-link-rxe", "depends=ib_core,udp-tunnel,ib_uverbs"},
		"ib_uverbs":   {"depends=ib_core"},
		"ib_core":     {"depends="},
		"udp_tunnel":  {"alias=a", "alias=b*"},
		"needs_much":  {"depends=nowhere"},
		"not_wanted":  {},
		"virtio_ring": {},
	} {
		files[name] = filepath.Join(dir, name+".ko")
		must.Do(t, os.WriteFile(files[name], fakeModule(t, fields...), 0o644))
	}
	found := map[string]*module{}
	must.Do(t, addModule(t.Context(), files, "rdma_rxe", found))
	if got := sortedKeys(found); !slices.Equal(got, []string{"ib_core", "ib_uverbs", "rdma_rxe", "udp_tunnel"}) {
		t.Errorf("found %v", got)
	}
	// modprobe loads dependencies from the last to the first.
	want := "ib_core.ko:\nib_uverbs.ko: ib_core.ko\nrdma_rxe.ko: ib_uverbs.ko udp_tunnel.ko ib_core.ko\nudp_tunnel.ko:\n"
	if got := dependencyList(found); got != want {
		t.Errorf("modules.dep is\n%swant\n%s", got, want)
	}
	if got := aliasList(found); got != "alias rdma-link-rxe rdma_rxe\nalias a udp_tunnel\nalias b* udp_tunnel\n" {
		t.Errorf("modules.alias is\n%s", got)
	}
	err := addModule(t.Context(), files, "needs_much", found)
	if err == nil || err.Error() != "needs_much needs nowhere: no module nowhere" {
		t.Errorf("got %v", err)
	}
}

func TestModuleFilesAreFoundByName(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"kernel/net/sch_netem.ko.xz", "kernel/arch/crc32c-intel.ko", "modules.order", "modules.builtin"} {
		path := filepath.Join(dir, name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, []byte("kernel/lib/crc-t10dif.ko\n"), 0o644))
	}
	files, err := moduleFiles(dir)
	if err != nil || !slices.Equal(sortedKeys(files), []string{"crc32c_intel", "sch_netem"}) {
		t.Errorf("found %v, %v", files, err)
	}
	if all, err := builtinModules(dir); err != nil || !all["crc_t10dif"] {
		t.Errorf("built in are %v, %v", all, err)
	}
	if _, err := readModule(t.Context(), "x.ko.zst"); err == nil {
		t.Error("a module in an unsupported format was read")
	}
}

func TestFindInFollowsLinksWithinRoot(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"} {
		must.Do(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	library := filepath.Join(root, "usr/lib/x86_64-linux-gnu/libx.so.1.2")
	must.Do(t, os.WriteFile(library, nil, 0o644))
	for name, target := range map[string]string{
		"lib/x86_64-linux-gnu/libx.so.1":   "/usr/lib/x86_64-linux-gnu/libx.so",
		"usr/lib/x86_64-linux-gnu/libx.so": "libx.so.1.2",
		"lib/x86_64-linux-gnu/loop.so":     "loop.so",
	} {
		must.Do(t, os.Symlink(target, filepath.Join(root, name)))
	}
	if got, err := findIn(root, libraryDirs, "libx.so.1"); err != nil || got != library {
		t.Errorf("found %s, %v", got, err)
	}
	for _, name := range []string{"loop.so", "none.so"} {
		if got, err := findIn(root, libraryDirs, name); err == nil {
			t.Errorf("found %s at %s", name, got)
		}
	}
	if _, err := libraryClosure(root, nil, nil); err == nil || !strings.Contains(err.Error(), "the recipe needs "+loader) {
		t.Errorf("empty tree: %v", err)
	}
}

func TestExtractFolder(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range []string{"linux/drivers/infiniband/sw/rxe/rxe.c", "linux/" + siwSource + "Makefile", "linux/" + siwSource + "siw.c", "linux/z"} {
		must.Do(t, w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(name))}))
		must.Get(w.Write([]byte(name)))(t)
	}
	must.Do(t, w.Close())
	all, into := b.Bytes(), filepath.Join(t.TempDir(), "siw")
	must.Do(t, extractFolder(bytes.NewReader(all), siwSource, into))
	if found, _ := filepath.Glob(into + "/*"); !slices.Equal(found, []string{into + "/Makefile", into + "/siw.c"}) {
		t.Errorf("found %v", found)
	}
	if err := extractFolder(bytes.NewReader(all), "no/such/", t.TempDir()); err == nil || !strings.Contains(err.Error(), "no directory no/such/") {
		t.Errorf("got %v", err)
	}
	if err := substitute(filepath.Join(into, "siw.c"), "rxe", "x"); err == nil {
		t.Error("substitute found a text that does not exist")
	}
}

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

// A header of the format has a magic number of six digits and thirteen numbers of eight digits.
// Name, with its NUL, and contents follow, padded to multiples of four.
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
		t.Errorf("%d octets are not a multiple of the block size", len(got))
	}
	if trimmed := strings.TrimRight(string(got), "\x00"); trimmed != strings.TrimRight(want, "\x00") {
		t.Errorf("got  %q\nwant %q", trimmed, want)
	}
	if !bytes.Equal(got, small(t)) {
		t.Error("the same files make a different archive")
	}
}

func TestArchiveIsReadByCPIO(t *testing.T) {
	cpio, err := exec.LookPath("cpio")
	if err != nil {
		t.Skip("no cpio: ", err)
	}
	cmd := exec.Command(cpio, "-tv", "--quiet")
	cmd.Stdin = bytes.NewReader(small(t))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"drwxr-xr-x   2 root", " etc/deep\n", "-rw-r--r--   1 root     root            5 ", " etc/motd\n", " bin -> usr/bin\n"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("cpio prints\n%s\nwant %q", out, want)
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
