package main

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/live"
	"github.com/fabrictest/fabrictest/netns"
)

// runProgram runs the program as a process, whose descriptors its children inherit.
func runProgram(t *testing.T, stdin string, args ...string) (code int, out string) {
	t.Helper()
	cmd := exec.Command(testProgram(t), args...)
	var b bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &b, &b
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), b.String()
}

// testProgram returns a link to the test binary, which TestMain runs as the program.
func testProgram(t *testing.T) string {
	t.Helper()
	self := must.Get(os.Executable())(t)
	name := filepath.Join(t.TempDir(), "fabrictest")
	must.Do(t, os.Symlink(self, name))
	return name
}

func needNamespaces(t *testing.T) {
	t.Helper()
	if err := netns.Available(); err != nil {
		t.Skip(err)
	}
}

func TestLabRunsUntilDown(t *testing.T) {
	needNamespaces(t)
	name := fmt.Sprintf("test-%d", os.Getpid())
	if code, out := runProgram(t, "", "lab", "up", "--lab", name, "--hosts", "3"); code != exitOK || !strings.Contains(out, "host2  rdma0") {
		t.Fatalf("up: exit code %d\n%s", code, out)
	}
	defer live.Down(context.Background(), name)
	if code, out := runProgram(t, "", "lab", "up", "--lab", name); code == exitOK || !strings.Contains(out, "is up already") {
		t.Errorf("up a second time: exit code %d\n%s", code, out)
	}
	for _, c := range []struct {
		stdin, args, want string
		code              int
	}{
		{"", "lab exec --lab NAME host1 -- sh -c 'echo $FABRICTEST_HOST'", "host1\n", 0},
		{"some text", "lab exec --lab NAME host0 -- cat", "some text", 0},
		{"", "lab exec --lab NAME host0 -- sh -c 'exit 9'", "", 9},
		{"", "lab exec --lab NAME host0 -- sh -c 'kill -9 $$'", "", 128 + 9},
		{"", "lab exec --lab NAME host7 -- true", "no host \"host7\": there are host0 to host2", exitFailed},
		{"", "lab exec --lab NAME host0 -- no-such-program", "no-such-program", exitUsage},
		{"", "lab set --lab NAME host1 loss=5% way=out", "", 0},
		{"", "lab set --lab NAME host1 los=5%", "fabrictest: los=5%: unknown key; did you mean loss?\n", exitUsage},
		{"", "lab set --lab NAME host9 loss=5%", "fabrictest: host9: no port matches", exitUsage},
		{"", "lab set --lab NAME host1 loss=lots", "fabrictest: loss=lots: ", exitUsage},
		{"", "__complete lab exec --lab NAME ho", "host0\nhost1\nhost2\n:4\n", 0},
		{"", "__complete lab set --lab NAME host1", "host1\nhost1/rdma0\n:4\n", 0},
		{"", "__complete lab set --lab NAME host1 d", "down\nduplicate=\nduplicate_delay=\ndelay=\n:6\n", 0},
		{"", "lab set --lab NAME host1/rdma0 down", "", 0},
		{"", "lab set --lab NAME host1 up", "", 0},
		{"", "lab set --lab NAME host* clean", "", 0},
		{"", "lab list", name + " 3 hosts 0 programs", 0},
	} {
		code, out := runProgram(t, c.stdin, splitArgs(strings.ReplaceAll(c.args, "NAME", name))...)
		if c.args == "lab list" {
			out = strings.Join(strings.Fields(out), " ") // labs of other tests may widen the columns
		}
		if code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s: exit code %d\n%s\nwant %d and %q", c.args, code, out, c.code, c.want)
		}
	}
	if code, out := runProgram(t, "", "lab", "down", name); code != exitOK {
		t.Errorf("down: exit code %d\n%s", code, out)
	}
	if names, err := live.List(t.Context()); err != nil || strings.Contains(strings.Join(names, " "), name) {
		t.Errorf("after down there are %v, %v", names, err)
	}
}

// splitArgs splits a line as a shell does, with single quotes only.
func splitArgs(line string) (all []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			all = append(all, part)
		} else {
			all = append(all, strings.Fields(part)...)
		}
	}
	return all
}

// A program started by lab exec is killed when the command dies.
func TestExecKillsProgramWhenCommandDies(t *testing.T) {
	needNamespaces(t)
	name := fmt.Sprintf("test-caller-%d", os.Getpid())
	if code, out := runProgram(t, "", "lab", "up", "--lab", name); code != exitOK {
		t.Fatalf("up: exit code %d\n%s", code, out)
	}
	defer live.Down(context.Background(), name)
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, testProgram(t), "lab", "exec", "--lab", name, "host0", "--", "sleep", "1000")
	must.Do(t, cmd.Start())
	waitUntil(t, "the program runs", func() bool { info, err := live.Query(t.Context(), name); return err == nil && info.Programs == 1 })
	cancel()
	_ = cmd.Wait() // it was killed
	waitUntil(t, "the program has ended", func() bool { info, err := live.Query(t.Context(), name); return err == nil && info.Programs == 0 })
}

func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timeout: %s", what)
		}
	}
}

func TestExecCreatesFabricForProgram(t *testing.T) {
	needNamespaces(t)
	code, out := runProgram(t, "", "lab", "exec", "-n", "3", "--", "sh", "-c", `echo "$FABRICTEST_RANK of $FABRICTEST_SIZE at $FABRICTEST_RDMA0_IPV6"`)
	for _, want := range []string{"host0: 0 of 3 at fd", "host2: 2 of 3 at fd"} {
		if code != exitOK || !strings.Contains(out, want) {
			t.Errorf("exit code %d\n%s\nwant %q", code, out, want)
		}
	}
	if code, out := runProgram(t, "", "lab", "exec", "-n", "2", "--plain", "--keep-going", "--", "sh", "-c", `exit $((FABRICTEST_RANK * 5))`); code != 5 {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// A lab that does not answer is listed, and delays the command by a timeout only.
func TestLabListIncludesUnresponsiveLabs(t *testing.T) {
	needNamespaces(t)
	t.Parallel() // it sleeps until the timeout
	name := fmt.Sprintf("test-silent-%d", os.Getpid())
	if code, out := runProgram(t, "", "lab", "up", "--lab", name, "--direct"); code != exitOK {
		t.Fatalf("up: exit code %d\n%s", code, out)
	}
	defer live.Down(context.Background(), name)
	info := must.Get(live.Query(t.Context(), name))(t)
	must.Do(t, syscall.Kill(info.PID, syscall.SIGSTOP))
	defer syscall.Kill(info.PID, syscall.SIGCONT)
	waitUntil(t, "the lab is stopped", func() bool {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", info.PID))
		return strings.Contains(string(stat), ") T ")
	})
	want := fmt.Sprintf("process %d\n", info.PID)
	began := time.Now()
	code, out := runProgram(t, "", "lab", "list")
	if code != exitOK || !strings.Contains(out, name+"  does not answer") || !strings.Contains(out, want) || time.Since(began) > 2*live.QueryAllTimeout {
		t.Errorf("exit code %d after %v\n%s", code, time.Since(began), out)
	}
}

// writeELF writes an ELF file that has only the names of the libraries that it needs.
func writeELF(t *testing.T, libraries ...string) string {
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

func TestWarnOfKernelRDMANamesLibraries(t *testing.T) {
	for want, path := range map[string]string{
		"libibverbs.so.1": writeELF(t, "libc.so.6", "libibverbs.so.1"), "librdmacm.so.1": writeELF(t, "librdmacm.so.1"),
	} {
		var out strings.Builder
		live.WarnOfKernelRDMA(&out, cli.GoRun, path)
		for _, part := range []string{"ib_write_bw is linked with " + want, cli.GoRun + " lab up --rdma rxe", cli.GoRun + " lab kernel up", cli.GoRun + " perf quick"} {
			if !strings.Contains(out.String(), part) {
				t.Errorf("%q is not in\n%s", part, out.String())
			}
		}
	}
	script := filepath.Join(t.TempDir(), "script")
	must.Do(t, os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755))
	for _, path := range []string{writeELF(t, "libc.so.6"), writeELF(t), script, "/dev/null", t.TempDir(), "no-such-program"} {
		var out strings.Builder
		if live.WarnOfKernelRDMA(&out, cli.GoRun, path); out.Len() > 0 {
			t.Errorf("%s: %s", path, out.String())
		}
	}
}

// A command line without a host and without -n is an error, but the warning is printed.
func TestExecWithoutHostWarnsOfKernelRDMA(t *testing.T) {
	code, _, stderr := call(t, "lab", "exec", "--", writeELF(t, "libibverbs.so.1"))
	if code != exitUsage || !strings.Contains(stderr, "needs RDMA devices of the kernel") || !strings.Contains(stderr, "exec -n 2 -- ") {
		t.Errorf("%d: %s", code, stderr)
	}
}

func TestExecWarnsBeforeProgramStarts(t *testing.T) {
	if err := netns.Available(); err != nil {
		t.Skip(err)
	}
	// The file cannot be executed, so the warning is printed before.
	if _, _, stderr := call(t, "lab", "exec", "-n", "2", "--", writeELF(t, "libibverbs.so.1")); !strings.Contains(stderr, "needs RDMA devices of the kernel") {
		t.Error(stderr)
	}
}

// An error about a missing program has the command that installs it.
func TestKernelLabNamesMissingPackages(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("kernel labs need Linux")
	}
	t.Setenv("PATH", t.TempDir())
	for _, line := range []string{"lab kernel check", "lab kernel up", "lab kernel run -- true"} {
		code, _, stderr := call(t, strings.Fields(line)...)
		if code != exitFailed || !strings.Contains(stderr, "qemu-system-x86_64 is missing") || !strings.Contains(stderr, "apt-get install --no-install-recommends qemu-system-x86 ") {
			t.Errorf("%s: exit code %d, %q", line, code, stderr)
		}
	}
}

func TestKernelLabCommandsHaveDescriptions(t *testing.T) {
	cmd, _, err := newRootCommand("fabrictest").Find([]string{"lab", "kernel"})
	if err != nil || len(cmd.Commands()) < 10 {
		t.Fatalf("%d commands, %v", len(cmd.Commands()), err)
	}
	for _, c := range cmd.Commands() {
		if c.Short == "" || c.RunE == nil {
			t.Errorf("%s has no description, or no function", c.Name())
		}
	}
}
