package kernel

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

// fakeModule is as little of an ELF file as holds a .modinfo.
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
	// modprobe loads the last first.
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
		t.Error("a module in a format that we do not read was read")
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
		t.Errorf("of an empty tree: %v", err)
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
		t.Error("a word was replaced that is not there")
	}
}
