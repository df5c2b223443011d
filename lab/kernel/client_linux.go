package kernel

import (
	"context"
	"os"
	"path/filepath"
)

// Start starts a lab in a detached process, and returns when its guests are ready.
func Start(ctx context.Context, name string, cfg Config) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if _, err := cfg.withDefaults(); err != nil {
		return err
	}
	if err := cfg.absolute(); err != nil {
		return err
	}
	if kind.Ping(ctx, name) == nil {
		return ErrAlreadyUp
	}
	if err := prepareLabDir(name, &cfg); err != nil {
		return err
	}
	return kind.Start(ctx, name, cfg)
}

// prepareLabDir removes old consoles from the directory of a lab. A user without a cache
// directory has none.
func prepareLabDir(name string, cfg *Config) error {
	log := kind.CrashLog(name)
	if log == "" {
		return nil
	}
	dir := filepath.Dir(log)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	old, _ := filepath.Glob(filepath.Join(dir, "guest*.console"))
	for _, f := range old {
		if err := os.Remove(f); err != nil {
			return err
		}
	}
	if cfg.Consoles == "" {
		cfg.Consoles = dir
	}
	return nil
}

// List returns the names of this user's kernel labs.
func List() (names []string, err error) { return kind.List(context.Background()) }
