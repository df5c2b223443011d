package simlab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fabrictest/fabrictest/emu/link/pcaplink"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/scenarios"
)

// captureFile is what the capture of a scenario is called in its folder.
const captureFile = "capture.pcapng"

// capture is the file that the packets of all hosts go to.
type capture struct {
	*pcaplink.Capture
	file *os.File
	path string // in the run's folder
}

// newCapture opens the file; nil where none is wanted.
func newCapture(s *scenarios.Scenario, opts *lab.Options) (*capture, error) {
	if !opts.Capture || opts.Dir == "" {
		return nil, nil
	}
	folder := opts.Folder(s, scenarios.Sim)
	if err := os.MkdirAll(filepath.Join(opts.Dir, folder), 0o755); err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	c := &capture{path: filepath.Join(folder, captureFile)}
	var err error
	if c.file, err = os.Create(filepath.Join(opts.Dir, c.path)); err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	c.Capture = pcaplink.NewCapture(c.file, pcaplink.Options{Comment: opts.Replay, SnapLen: opts.SnapLen})
	return c, nil
}

// close completes the file. One that could not be written whole is no evidence
// and goes.
func (c *capture) close() (*report.File, error) {
	if c == nil {
		return nil, nil
	}
	err := c.Close()
	info, serr := c.file.Stat()
	if err = errors.Join(err, serr, c.file.Close()); err != nil {
		_ = os.Remove(c.file.Name())
		return nil, fmt.Errorf("capture %s: %w", c.path, err)
	}
	return &report.File{Kind: "capture", Path: filepath.ToSlash(c.path), Size: info.Size()}, nil
}
