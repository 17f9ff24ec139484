package main

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/snapfs/snapfs/cas/local"
	"github.com/snapfs/snapfs/policy"
)

// systemConfig is read for every user, before the user's own file.
const systemConfig = "/etc/snapfs/config.yaml"

// configEnv names another file instead of both.
const configEnv = "SNAPFS_CONFIG"

// flagsGiven is where the application keeps which flags the command line has.
const flagsGiven = "flags given"

// configFile is the form of a configuration file. A value that is not there
// leaves the default.
type configFile struct {
	Version     int          `yaml:"version"`
	Store       *string      `yaml:"store"`
	Policy      *string      `yaml:"policy"`
	Log         configLog    `yaml:"log"`
	Compression *string      `yaml:"compression"`
	Limits      configLimits `yaml:"limits"`
	Secrets     *string      `yaml:"secrets"`
	Mount       configMount  `yaml:"mount"`
	Retention   configRetain `yaml:"retention"`
}

type configLog struct {
	Level  *string `yaml:"level"`
	Format *string `yaml:"format"`
	File   *string `yaml:"file"`
}

type configLimits struct {
	MaxFileSize *string `yaml:"maxFileSize"`
	MaxSize     *string `yaml:"maxSize"`
	Store       *string `yaml:"store"`
}

type configMount struct {
	AllowOther *bool `yaml:"allowOther"`
	XAttrs     *bool `yaml:"xattrs"`
}

type configRetain struct {
	Enabled    *bool   `yaml:"enabled"`
	KeepLast   *int    `yaml:"keepLast"`
	KeepHourly *int    `yaml:"keepHourly"`
	KeepDaily  *int    `yaml:"keepDaily"`
	KeepWeekly *int    `yaml:"keepWeekly"`
	KeepWithin *string `yaml:"keepWithin"`
}

// A setting can come from a flag, a variable, a file, or be left at its default,
// in this order.
type setting struct {
	key      string // in files
	flag     string // empty: no flag stands for it
	env      string // empty: no variable stands for it
	fallback string
	path     bool // in a file: relative to that file's directory
	check    func(string) error
	file     func(*configFile) *string
}

// settings are all that files can set.
var settings = []setting{
	{key: "store", flag: "store", env: "SNAPFS_STORE", path: true, file: func(f *configFile) *string { return f.Store }},
	{key: "policy", flag: "policy", env: "SNAPFS_POLICY", path: true, file: func(f *configFile) *string { return f.Policy }},
	{key: "log.level", flag: "log-level", env: "SNAPFS_LOG_LEVEL", fallback: "warn", check: checkLevel, file: func(f *configFile) *string { return f.Log.Level }},
	{key: "log.format", flag: "log-format", env: "SNAPFS_LOG_FORMAT", fallback: "text", check: checkFormat, file: func(f *configFile) *string { return f.Log.Format }},
	{key: "log.file", flag: "log-file", path: true, file: func(f *configFile) *string { return f.Log.File }},
	{key: "compression", flag: "compression", env: "SNAPFS_COMPRESSION", fallback: "auto", check: checkCompression, file: func(f *configFile) *string { return f.Compression }},
	{key: "limits.maxFileSize", flag: "max-file-size", check: checkBytes, file: func(f *configFile) *string { return f.Limits.MaxFileSize }},
	{key: "limits.maxSize", flag: "max-size", check: checkBytes, file: func(f *configFile) *string { return f.Limits.MaxSize }},
	{key: storeLimit, check: checkBytes, file: func(f *configFile) *string { return f.Limits.Store }},
	{key: "secrets", flag: "secrets", fallback: "warn", check: checkSecrets, file: func(f *configFile) *string { return f.Secrets }},
	{key: "mount.allowOther", flag: allowOtherFlag, fallback: "false", file: func(f *configFile) *string { return boolText(f.Mount.AllowOther) }},
	{key: "mount.xattrs", flag: xattrsFlag, fallback: "false", file: func(f *configFile) *string { return boolText(f.Mount.XAttrs) }},
	{key: retentionEnabled, fallback: "false", file: func(f *configFile) *string { return boolText(f.Retention.Enabled) }},
	{key: "retention.keepLast", fallback: "0", check: checkKeep, file: func(f *configFile) *string { return intText(f.Retention.KeepLast) }},
	{key: "retention.keepHourly", fallback: "0", check: checkKeep, file: func(f *configFile) *string { return intText(f.Retention.KeepHourly) }},
	{key: "retention.keepDaily", fallback: "0", check: checkKeep, file: func(f *configFile) *string { return intText(f.Retention.KeepDaily) }},
	{key: "retention.keepWeekly", fallback: "0", check: checkKeep, file: func(f *configFile) *string { return intText(f.Retention.KeepWeekly) }},
	{key: "retention.keepWithin", check: checkWithin, file: func(f *configFile) *string { return f.Retention.KeepWithin }},
}

// storeLimit is the setting of what the store may take.
const storeLimit = "limits.store"

func boolText(b *bool) *string {
	if b == nil {
		return nil
	}
	s := strconv.FormatBool(*b)
	return &s
}

func intText(n *int) *string {
	if n == nil {
		return nil
	}
	s := strconv.Itoa(*n)
	return &s
}

func checkCompression(s string) error {
	_, err := local.ParseCompression(s)
	return err
}

func checkSecrets(s string) error {
	_, err := policy.ParseSecretsMode(s)
	return err
}

func checkBytes(s string) error {
	_, err := parseBytes(s)
	return err
}

// A value is what a setting is, and where that was said.
type value struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"` // a flag, a variable, a file, or "default"
}

// config is what the files say, by key.
type config map[string]value

// loadConfig reads the files: the one that is named, or the system's and then
// the user's. Only a named one must exist.
func loadConfig(ctx context.Context, named string) (config, error) {
	found := config{}
	if named != "" {
		path, err := filepath.Abs(named)
		if err != nil {
			return nil, fmt.Errorf("configuration %s: %w", named, err)
		}
		if err := found.read(ctx, path); err != nil {
			return nil, usage(err)
		}
		// A daemon that this program starts reads the same file.
		return found, os.Setenv(configEnv, path)
	}
	paths := []string{systemConfig}
	if dir := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		paths = append(paths, filepath.Join(dir, "snapfs", "config.yaml"))
	} else if home, err := os.UserHomeDir(); err == nil {
		paths = append(paths, filepath.Join(home, ".config", "snapfs", "config.yaml"))
	}
	for _, path := range paths {
		if err := found.read(ctx, path); err != nil && !errors.Is(err, iofs.ErrNotExist) {
			return nil, usage(err)
		}
	}
	return found, nil
}

// read adds what one file says to what was found before.
func (c config) read(ctx context.Context, path string) error {
	file := configFile{Version: 1}
	if err := readYAML(ctx, "configuration", path, &file); err != nil {
		return err
	}
	if file.Version != 1 {
		return fmt.Errorf("configuration %s: version %d, this snapfs knows version 1", quote(path), file.Version)
	}
	for _, s := range settings {
		v := s.file(&file)
		if v == nil {
			continue
		}
		if s.check != nil {
			if err := s.check(*v); err != nil {
				return fmt.Errorf("configuration %s: %s: %w", quote(path), s.key, err)
			}
		}
		if s.path {
			*v = beside(path, *v)
		}
		c[s.key] = value{Key: s.key, Value: *v, Source: path}
	}
	return nil
}

// beside makes a path in a configuration file mean the same from everywhere.
func beside(file, path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	if path == "" || filepath.IsAbs(path) || strings.Contains(path, "://") {
		return path
	}
	return filepath.Join(filepath.Dir(file), path)
}

// configure gives the flags that the command line does not have what variables
// and files say. A variable that is empty says nothing.
func configure(c *cli.Context) error {
	found, err := loadConfig(c.Context, c.String("config"))
	if err != nil {
		return err
	}
	c.App.Metadata[configRead] = found
	own := names(append(c.App.Flags[:len(c.App.Flags):len(c.App.Flags)], c.Command.Flags...))
	for _, s := range settings {
		if v := s.value(c, found); s.flag != "" && own[s.flag] && !given(c, s.flag) {
			if err := c.Set(s.flag, v.Value); err != nil {
				return usage(fmt.Errorf("%s: %s: %w", v.Source, s.key, err))
			}
		}
	}
	return nil
}

// configRead is where the application keeps what the files say.
const configRead = "configuration read"

// given reports whether the command line has a flag.
func given(c *cli.Context, flag string) bool {
	all, _ := c.App.Metadata[flagsGiven].(map[string]bool)
	return all[flag]
}

// setIn tells what files say of a setting that no flag has; the zero value: nothing.
func setIn(c *cli.Context, key string) value {
	found, _ := c.App.Metadata[configRead].(config)
	return found[key]
}

// value tells what a setting is, and why.
func (s setting) value(c *cli.Context, found config) value {
	if s.flag != "" && given(c, s.flag) {
		return value{Key: s.key, Value: c.String(s.flag), Source: "--" + s.flag}
	}
	if s.env != "" {
		if text := os.Getenv(s.env); text != "" {
			return value{Key: s.key, Value: text, Source: s.env}
		}
	}
	if v, ok := found[s.key]; ok {
		return v
	}
	return value{Key: s.key, Value: s.fallback, Source: "default"}
}
