package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/live"
	"github.com/fabrictest/fabrictest/netns"
)

// linkedWith writes an ELF file that needs libraries, and has nothing else.
func linkedWith(t *testing.T, libraries ...string) string {
	t.Helper()
	var names, dynamic bytes.Buffer
	names.WriteByte(0)
	for _, lib := range libraries {
		binary.Write(&dynamic, binary.LittleEndian, elf.Dyn64{Tag: int64(elf.DT_NEEDED), Val: uint64(names.Len())})
		names.WriteString(lib + "\x00")
	}
	binary.Write(&dynamic, binary.LittleEndian, elf.Dyn64{})
	const header, section = 64, 64
	h := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Shoff: header, Ehsize: header, Shentsize: section, Shnum: 3, Shstrndx: 1,
	}
	copy(h.Ident[:], []byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)})
	at := uint64(header + 3*section)
	var file bytes.Buffer
	for _, part := range []any{
		h,
		elf.Section64{},
		elf.Section64{Type: uint32(elf.SHT_STRTAB), Off: at, Size: uint64(names.Len())},
		elf.Section64{Type: uint32(elf.SHT_DYNAMIC), Off: at + uint64(names.Len()), Size: uint64(dynamic.Len()), Link: 1, Entsize: 16},
		names.Bytes(), dynamic.Bytes(),
	} {
		must.Do(t, binary.Write(&file, binary.LittleEndian, part))
	}
	path := filepath.Join(t.TempDir(), "ib_write_bw")
	must.Do(t, os.WriteFile(path, file.Bytes(), 0o755))
	return path
}

func TestExecSaysWhatProgramsOverLibibverbsLack(t *testing.T) {
	for want, path := range map[string]string{
		"libibverbs.so.1": linkedWith(t, "libc.so.6", "libibverbs.so.1"), "librdmacm.so.1": linkedWith(t, "librdmacm.so.1"),
	} {
		var out strings.Builder
		live.WarnOfKernelRDMA(&out, cmdline.GoRun, path)
		for _, part := range []string{"ib_write_bw is linked with " + want, cmdline.GoRun + " lab up --rdma rxe", cmdline.GoRun + " lab kernel up", cmdline.GoRun + " perf quick"} {
			if !strings.Contains(out.String(), part) {
				t.Errorf("%q is not in\n%s", part, out.String())
			}
		}
	}
	script := filepath.Join(t.TempDir(), "script")
	must.Do(t, os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755))
	for _, path := range []string{linkedWith(t, "libc.so.6"), linkedWith(t), script, "/dev/null", t.TempDir(), "no-such-program"} {
		var out strings.Builder
		if live.WarnOfKernelRDMA(&out, cmdline.GoRun, path); out.Len() > 0 {
			t.Errorf("%s: %s", path, out.String())
		}
	}
}

// Without a host and without -n there is nowhere to run the program, but it is not too
// early to say what it lacks.
func TestExecWithoutAHostSaysWhatTheProgramLacks(t *testing.T) {
	code, _, stderr := call(t, "lab", "exec", "--", linkedWith(t, "libibverbs.so.1"))
	if code != exitUsage || !strings.Contains(stderr, "needs RDMA devices of the kernel") || !strings.Contains(stderr, "exec -n 2 -- ") {
		t.Errorf("%d: %s", code, stderr)
	}
}

func TestExecWarnsBeforeItRunsTheProgram(t *testing.T) {
	if err := netns.Available(); err != nil {
		t.Skip(err)
	}
	// No machine can run that file: what is said is said before.
	if _, _, stderr := call(t, "lab", "exec", "-n", "2", "--", linkedWith(t, "libibverbs.so.1")); !strings.Contains(stderr, "needs RDMA devices of the kernel") {
		t.Error(stderr)
	}
}
