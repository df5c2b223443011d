//go:build unix

package cli

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

// Without the check, opening a FIFO without a writer blocks.
func TestOnlyRegularFilesAreOpened(t *testing.T) {
	dir := t.TempDir()
	pipe, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	must.Do(t, errors.Join(syscall.Mkfifo(pipe, 0o600), os.Symlink(pipe, link)))
	socket := filepath.Join(dir, "socket")
	l := must.Get((&net.ListenConfig{}).Listen(t.Context(), "unix", socket))(t)
	defer l.Close()
	for path, want := range map[string]string{
		pipe: "a pipe", link: "a pipe", dir: "a folder", "/dev/zero": "a device", socket: "a socket",
	} {
		_, err := ReadFile(path, 1<<10)
		if !errors.Is(err, ErrNotRegular) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
		if _, err := fs.ReadFile(DirFS(filepath.Dir(path)), filepath.Base(path)); !errors.Is(err, ErrNotRegular) {
			t.Errorf("%s by DirFS: %v", path, err)
		}
		if err := CheckFile(path); !errors.Is(err, ErrNotRegular) {
			t.Errorf("check of %s: %v", path, err)
		}
	}
}

func TestReadFileEnforcesLimit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(file, []byte("four"), 0o600))
	if text, err := ReadFile(file, 4); err != nil || string(text) != "four" {
		t.Errorf("%q, %v", text, err)
	}
	must.Do(t, os.Truncate(file, 1<<40))
	if _, err := ReadFile(file, 4); !errors.Is(err, ErrTooLong) {
		t.Errorf("a file of 1 TiB: %v", err)
	}
	if _, err := ReadFile(file+"x", 4); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := fs.ReadFile(DirFS(filepath.Dir(file)), "../file"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("outside of the folder: %v", err)
	}
}
