package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// defaultAdmin is where the commands look for a member.
const defaultAdmin = "127.0.0.1:7101"

// commandFlags are the flags of all commands.
type commandFlags struct {
	set                       *flag.FlagSet
	admin, to, member         string
	dir, file                 string
	voters                    int
	replaceAfter, removeAfter time.Duration
}

// newCommandFlags defines the flags that a command has.
func newCommandFlags(command string) (*commandFlags, error) {
	has := map[string]string{
		"status": "admin", "leave": "admin", "transfer": "admin to", "remove": "admin member", "backup": "admin file",
		"config": "admin voters replace-after remove-after",
		"verify": "dir", "recover": "dir", "restore": "dir file",
	}[command]
	if has == "" {
		return nil, fmt.Errorf("unknown command %q: %w", command, errUsage)
	}
	f := &commandFlags{set: flag.NewFlagSet("member "+command, flag.ExitOnError)}
	define := map[string]func(name string){
		"admin":  func(n string) { f.set.StringVar(&f.admin, n, defaultAdmin, "`address` of -admin of a running member") },
		"to":     func(n string) { f.set.StringVar(&f.to, n, "", "`ID` of a voter (default: the most up-to-date one)") },
		"member": func(n string) { f.set.StringVar(&f.member, n, "", "`ID` of the member (required)") },
		"dir": func(n string) {
			f.set.StringVar(&f.dir, n, "", "data `directory`, with no member running on it (required)")
		},
		"file":   func(n string) { f.set.StringVar(&f.file, n, "", "`file` of the backup (required)") },
		"voters": func(n string) { f.set.IntVar(&f.voters, n, 0, "set how many `members` vote: 1, 3, 5 or 7") },
		"replace-after": func(n string) {
			f.set.DurationVar(&f.replaceAfter, n, 0, "set when a standby replaces a silent voter; 0: never")
		},
		"remove-after": func(n string) {
			f.set.DurationVar(&f.removeAfter, n, 0, "set when a silent member is removed; 0: never")
		},
	}
	for name := range strings.FieldsSeq(has) {
		define[name](name)
	}
	return f, nil
}

// command carries out one command.
func command(ctx context.Context, name string, args []string, w io.Writer) error {
	f, err := newCommandFlags(name)
	if err != nil {
		return err
	}
	_ = f.set.Parse(args) // exits on -help and on an error
	if f.set.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: %w", f.set.Arg(0), errUsage)
	}
	for _, required := range []string{"member", "dir", "file"} {
		if defined := f.set.Lookup(required); defined != nil && defined.Value.String() == "" {
			return fmt.Errorf("missing -%s: %w", required, errUsage)
		}
	}
	switch name {
	case "status":
		return f.call(ctx, w, http.MethodGet, "/status", nil)
	case "config":
		return f.config(ctx, w)
	case "transfer":
		return f.call(ctx, w, http.MethodPost, "/transfer?to="+f.to, nil)
	case "remove":
		return f.call(ctx, w, http.MethodDelete, "/members/"+f.member, nil)
	case "leave":
		return f.call(ctx, w, http.MethodPost, "/leave", nil)
	case "backup":
		return f.backup(ctx, w)
	}
	return offline(ctx, name, f, w)
}

// call sends a request to the member and copies the answer.
func (f *commandFlags) call(ctx context.Context, w io.Writer, method, path string, body []byte) error {
	response, err := f.request(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(w, response.Body); err != nil {
		return err
	}
	if text := response.Trailer.Get(errorTrailer); text != "" {
		return errors.New(text)
	}
	return nil
}

// request returns the answer, or the member's error.
func (f *commandFlags) request(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+f.admin+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(r)
	if ctx.Err() != nil {
		return nil, errors.New("interrupted: the member may carry it out yet")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: is a member running there with -admin %s?", err, f.admin)
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	return nil, cmp.Or(err, errors.New(strings.TrimSpace(string(text))))
}

// config changes the settings that have a flag, and prints all.
func (f *commandFlags) config(ctx context.Context, w io.Writer) error {
	response, err := f.request(ctx, http.MethodGet, "/config", nil)
	if err != nil {
		return err
	}
	var s settings
	err = json.NewDecoder(response.Body).Decode(&s)
	response.Body.Close()
	if err != nil {
		return err
	}
	changed := false
	f.set.Visit(func(set *flag.Flag) {
		switch set.Name {
		case "voters":
			s.Voters, changed = f.voters, true
		case "replace-after":
			s.ReplaceAfter, changed = period(f.replaceAfter), true
		case "remove-after":
			s.RemoveAfter, changed = period(f.removeAfter), true
		}
	})
	if !changed {
		return f.call(ctx, w, http.MethodGet, "/config", nil)
	}
	body, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return f.call(ctx, w, http.MethodPut, "/config", body)
}

// backup writes a backup to a file, which exists only once it is complete and
// durable.
func (f *commandFlags) backup(ctx context.Context, w io.Writer) error {
	unfinished := f.file + ".tmp"
	file, err := os.OpenFile(unfinished, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) // it has all keys in clear
	if err != nil {
		return err
	}
	defer os.Remove(unfinished) // fails once it is renamed
	defer file.Close()
	if err := f.call(ctx, file, http.MethodGet, "/backup", nil); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	size, err := file.Seek(0, io.SeekCurrent)
	if err == nil {
		err = os.Rename(unfinished, f.file)
	}
	if err == nil {
		fmt.Fprintf(w, "%s: %d bytes\n", f.file, size)
	}
	return err
}
