// Protogen writes the Go code of a .proto file next to it, with the versions
// of the compiler and of protoc-gen-go that tools/go.mod names, so that no
// protoc has to be installed.
//
// NAME is the name that the file registers under. Programs that link several
// libraries share one registry, so it has to be unique in the world; its last
// element is the file's own name.
//
//	go -C tools run ./protogen ../internal/wire github.com/conclave-go/conclave/internal/wire/wire.proto
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: protogen FOLDER NAME")
		os.Exit(2)
	}
	if err := generate(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

func generate(folder, name string) error {
	compiler := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
			Accessor: func(wanted string) (io.ReadCloser, error) {
				if wanted != name {
					return nil, os.ErrNotExist
				}
				return os.Open(filepath.Join(folder, path.Base(name)))
			},
		}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(context.Background(), name)
	if err != nil {
		return err
	}
	request := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{name},
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      []*descriptorpb.FileDescriptorProto{protoutil.ProtoFromFileDescriptor(files[0])},
	}
	in, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	plugin := exec.Command("go", "tool", "protoc-gen-go")
	plugin.Stdin = bytes.NewReader(in)
	plugin.Stderr = os.Stderr
	out, err := plugin.Output()
	if err != nil {
		return fmt.Errorf("protoc-gen-go: %w", err)
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return fmt.Errorf("protoc-gen-go: %s", response.GetError())
	}
	for _, f := range response.File {
		target := filepath.Join(folder, path.Base(f.GetName()))
		if err := os.WriteFile(target, []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
