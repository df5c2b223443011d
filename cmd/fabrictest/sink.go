package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// sink is where captures go: nowhere, one file of many sections, or a folder of
// files. A file appears under its name only when it is complete.
type sink struct {
	dir   string   // where files are made; "" if no capture is wanted
	file  *os.File // the one file, under a temporary name; nil for a folder
	path  string   // its name to be
	files []captureFile
}

// captureFile is a file that was written.
type captureFile struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// openSink prepares for captures to path; "" means none.
func openSink(path string) (*sink, error) {
	if path == "" {
		return new(sink), nil
	}
	info, err := os.Stat(path)
	if strings.HasSuffix(path, "/") || err == nil && info.IsDir() {
		if err := os.MkdirAll(path, 0o777); err != nil {
			return nil, fmt.Errorf("--pcap: %w: name a folder that can be made", err)
		}
		return &sink{dir: path}, nil
	}
	s := &sink{dir: filepath.Dir(path), path: path}
	if s.file, err = os.CreateTemp(s.dir, ".fabrictest-*"); err != nil {
		return nil, fmt.Errorf("--pcap: %w: name a file in a folder that exists and can be written to", err)
	}
	return s, nil
}

// capture is the capture of one scenario while it runs. Its file has no name,
// so that nothing is left of a run that is killed.
type capture struct {
	id   string
	file *os.File
	buf  *bufio.Writer
}

// begin starts a capture; nil if none is wanted.
func (s *sink) begin(id string) (*capture, error) {
	if s.dir == "" {
		return nil, nil
	}
	f, err := os.CreateTemp(s.dir, ".fabrictest-*")
	if err != nil {
		return nil, fmt.Errorf("--pcap: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, fmt.Errorf("--pcap: %w", err)
	}
	return &capture{id: id, file: f, buf: bufio.NewWriterSize(f, 1<<20)}, nil
}

func (c *capture) writer() io.Writer {
	if c == nil {
		return nil
	}
	return c.buf
}

// add stores a capture that is complete.
func (s *sink) add(c *capture) error {
	if c == nil {
		return nil
	}
	defer c.file.Close()
	if err := c.buf.Flush(); err != nil {
		return fmt.Errorf("--pcap: %w", err)
	}
	if _, err := c.file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("--pcap: %w", err)
	}
	if s.file != nil {
		// Each scenario is a section of its own, with its own interfaces.
		if _, err := io.Copy(s.file, c.file); err != nil {
			return fmt.Errorf("--pcap: %w", err)
		}
		return nil
	}
	to, err := os.CreateTemp(s.dir, ".fabrictest-*")
	if err != nil {
		return fmt.Errorf("--pcap: %w", err)
	}
	_, err = io.Copy(to, c.file)
	return s.publish(to, filepath.Join(s.dir, strings.ReplaceAll(c.id, "/", "-")+".pcapng"), err)
}

// publish gives a file its name, or removes it if it is not complete.
func (s *sink) publish(f *os.File, name string, err error) error {
	info, serr := f.Stat()
	if err = errors.Join(err, serr, f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("--pcap: %w", err)
	}
	s.files = append(s.files, captureFile{Name: name, Bytes: info.Size()})
	return nil
}

// close publishes the one file if the run got to its end.
func (s *sink) close(complete bool) error {
	if s.file == nil {
		return nil
	}
	if !complete {
		s.file.Close()
		return os.Remove(s.file.Name())
	}
	return s.publish(s.file, s.path, nil)
}
