package capture

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// ViewerCommand returns the command line that opens a capture in Wireshark, or prints it
// with tshark: if asText is set, or there is no Wireshark or no display.
func ViewerCommand(ctx context.Context, file string, asText bool) ([]string, error) {
	tool, noTshark := exec.LookPath("tshark")
	gui, noGUI := exec.LookPath("wireshark")
	if noGUI != nil && noTshark != nil {
		return nil, ErrNotInstalled
	}
	var options []string
	if noTshark == nil {
		options = TsharkOptions(ctx, tool, file)
	} else {
		options = DefaultTsharkOptions()
	}
	if asText || noGUI != nil || !hasDisplay() {
		if noTshark != nil {
			return nil, fmt.Errorf("there is no display for %s, and tshark is not on PATH: install it (apt install tshark), or open %s elsewhere", gui, file)
		}
		return append([]string{tool, "-r", file}, options...), nil
	}
	return append(append([]string{gui}, options...), "-r", file), nil
}

// hasDisplay reports whether programs can open windows.
func hasDisplay() bool {
	return os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != "" || runtime.GOOS == "darwin"
}

// Find returns the captures in the folder of a run whose path below it contains all of
// the words. A run that is a file is a capture itself.
func Find(run string, words []string) ([]string, error) {
	if info, err := os.Stat(run); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return []string{run}, nil
	}
	all, err := capturesIn(run)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no capture: was it run with --capture none?", run)
	}
	chosen := slices.DeleteFunc(slices.Clone(all), func(file string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(file[len(run):], w) })
	})
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no capture in %s has %s in its path; there are:\n  %s", run, strings.Join(words, " and "), strings.Join(all, "\n  "))
	}
	return chosen, nil
}

// capturesIn returns the captures below a folder.
func capturesIn(dir string) (files []string, err error) {
	err = filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && isCapture(name) {
			files = append(files, name)
		}
		return err
	})
	return files, err
}

// isCapture reports whether the name of a file is that of a capture.
func isCapture(name string) bool {
	name = strings.TrimSuffix(name, ".gz")
	return strings.HasSuffix(name, ".pcapng") || strings.HasSuffix(name, ".pcap")
}
